"""Decodes properties text (`name \\x01 value \\x02` ...) to Arrow columns, in one pass over the text of all rows. A piece is
one property.

Invariant: the rules are those of Java's `string2messageProperties`. A piece ends at \\x02 or at the text's end. A piece
without a name, a value or the \\x01 between them is dropped. If a name repeats in one row, the last piece counts."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

NAME_END, PIECE_END = 1, 2
HEAD_BYTES = 8
"""This many bytes of a name are compared as one number. Requested names are not longer."""
HEAD_MASKS = np.array([(1 << 8 * size) - 1 for size in range(HEAD_BYTES + 1)], np.uint64)
PIECES_COMPARED_MAX = 64
"""In rows with more properties, equal names are found one by one."""


class RowProperties:
    """Properties of the rows of `texts`, a string array of valid UTF-8 that begins at the start of its buffers. The text is
    copied, unless the buffer has a few more bytes than the text."""

    def __init__(self, texts: pa.Array) -> None:
        assert texts.offset == 0
        _, bounds, data = texts.buffers()
        self.rows = len(texts)
        self.bounds = np.frombuffer(bounds, np.int32, self.rows + 1)
        self.size = int(self.bounds[-1])
        self.text = np.frombuffer(data or b"", np.uint8)  # heads are read up to and beyond its end
        if len(self.text) <= self.size + HEAD_BYTES:
            self.text = np.append(self.text[: self.size], np.zeros(HEAD_BYTES + 1, np.uint8))
        self.ends, self.nexts = self.piece_ends()
        self.starts = np.append(0, self.nexts)[:-1]

    def piece_ends(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ends of pieces, and the beginning of the piece after each: after the \\x02, or at the next row."""
        ends = np.flatnonzero(self.text[: self.size] == PIECE_END)
        row_ends, empty = self.bounds[1:], self.bounds[1:] == self.bounds[:-1]
        if empty.any():
            row_ends = row_ends[~empty]
        unended = self.text[row_ends - 1] != PIECE_END
        if not unended.any():
            return ends, ends + 1
        open_ends = row_ends[unended].astype(np.int64)
        steps = np.sort(np.concatenate((ends * 2 + 1, open_ends * 2)))  # odd numbers: a \x02 is there
        return steps >> 1, (steps + 1) >> 1

    @cached_property
    def heads(self) -> NDArray[np.uint64]:
        """The first eight bytes of each piece as a little-endian number; they may reach into the next piece."""
        words = np.ndarray(self.size + 1, "<u8", self.text, 0, (1,))
        heads: NDArray[np.uint64] = words[self.starts]
        return heads

    def column(self, name: str) -> pa.Array:
        """The value of one property per row; null if absent."""
        wanted = name.encode() + bytes([NAME_END])
        assert len(wanted) <= HEAD_BYTES + 1
        head = wanted[:HEAD_BYTES]
        heads = self.heads if len(head) == HEAD_BYTES else self.heads & HEAD_MASKS[len(head)]
        found = np.flatnonzero(heads == np.uint64(int.from_bytes(head, "little")))
        starts, ends = self.starts[found], self.ends[found]
        values_at = starts + len(wanted)
        good = values_at < ends
        if len(wanted) > HEAD_BYTES:
            good &= self.text[values_at - 1] == NAME_END
        if not good.all():
            starts, values_at, ends = starts[good], values_at[good], ends[good]
        bounds = np.empty(2 * len(starts) + 1, np.int32)
        bounds[:-1:2] = values_at
        bounds[1::2] = ends
        bounds[-1] = self.size
        values = self.slices(bounds)
        places = np.arange(0, 2 * len(starts), 2)
        if len(starts) == self.rows and ((starts >= self.bounds[:-1]) & (starts < self.bounds[1:])).all():
            return values.take(pa.array(places))
        chosen = np.full(self.rows, -1, np.int64)
        chosen[np.searchsorted(self.bounds, starts, "right") - 1] = places  # the last counts
        return values.take(pa.array(chosen, mask=chosen < 0))

    def map(self) -> pa.Array:
        """All properties, as one map<string, string> for each row."""
        starts, ends = self.starts, self.ends
        firsts = np.searchsorted(self.nexts, self.bounds, "right")
        middles = np.flatnonzero(self.text[: self.size] == NAME_END)
        paired = len(middles) == len(ends) and whole(starts, middles, ends).all()
        if not paired:  # the first \x01 in or behind each piece
            middles = np.append(middles, len(self.text))[np.searchsorted(middles, starts)]
        heads = self.heads & HEAD_MASKS[np.minimum(middles - starts, HEAD_BYTES)]
        if not paired:
            good = whole(starts, middles, ends)
            starts, middles, ends, heads = starts[good], middles[good], ends[good], heads[good]
            firsts = np.append(0, np.cumsum(good))[firsts]
        overwritten = self.overwritten(starts, middles, heads, firsts)
        if len(overwritten):
            kept = np.ones(len(starts), np.bool_)
            kept[overwritten] = False
            starts, middles, ends = starts[kept], middles[kept], ends[kept]
            firsts = np.append(0, np.cumsum(kept))[firsts]
        bounds = np.empty(4 * len(starts) + 1, np.int32)
        for place, edge in enumerate((starts, middles, middles + 1, ends)):
            bounds[place:-1:4] = edge
        bounds[-1] = self.size
        pieces = self.slices(bounds)
        names = np.arange(0, len(bounds) - 1, 4)
        return pa.MapArray.from_arrays(
            pa.array(firsts.astype(np.int32)), pieces.take(pa.array(names)), pieces.take(pa.array(names + 2))
        )

    def slices(self, bounds: NDArray[np.int32]) -> pa.Array:
        """The text between each two bounds, without a copy."""
        return pa.Array.from_buffers(
            pa.string(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(self.text)]
        )

    def overwritten(
        self,
        starts: NDArray[np.int64],
        middles: NDArray[np.int64],
        heads: NDArray[np.uint64],
        firsts: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Pieces whose name occurs again later in their row."""
        sizes, counts = middles - starts, np.diff(firsts)

        def name(place: int) -> bytes:
            return self.text[starts[place] : middles[place]].tobytes()

        found = []
        for lag in range(1, min(int(counts.max(initial=0)), PIECES_COMPARED_MAX + 1)):
            early = np.flatnonzero(heads[lag:] == heads[:-lag])
            if len(early):
                early = early[sizes[early] == sizes[early + lag]]
                rows, later_rows = (np.searchsorted(firsts, early + step, "right") for step in (0, lag))
                early = early[rows == later_rows]
                found += [place for place in early.tolist() if name(place) == name(place + lag)]
        for row in np.flatnonzero(counts > PIECES_COMPARED_MAX).tolist():
            last: dict[bytes, int] = {}
            for place in range(firsts[row], firsts[row + 1]):
                if name(place) in last:
                    found.append(last[name(place)])
                last[name(place)] = place
        return np.array(found, np.int64)


def whole(
    starts: NDArray[np.int64], middles: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which pieces have a name and a value."""
    return (middles > starts) & (middles + 1 < ends)
