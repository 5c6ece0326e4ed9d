"""The properties of many records at once: the positions of values, and their hashes as in Java.

Invariant: the value of a name is the one that `properties.last_value` finds. A row with a long text or a value that is not
ASCII gets no result and is listed in `odd`; the caller handles it as a single record. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

TEXT_BYTES_MAX = 511
VALUE_BYTES_MAX = 128
NAME_END, PIECE_END, SPACE = 1, 2, 0x20
HEAD_BYTES = 8
"""This many bytes of a name are compared as one number. Requested names are not longer."""
U32_MASK = 0xFFFFFFFF
POWERS = np.array([pow(31, power, 1 << 32) for power in range(VALUE_BYTES_MAX + 1)], np.uint32)
I32_MAX = 2**31 - 1


class Values(NamedTuple):
    """One property's values, one for each row. `given` is false for a row without the property and for an odd row."""

    given: NDArray[np.bool_]
    hashes: NDArray[np.uint32]
    """`String.hashCode` of the value, unsigned."""
    sizes: NDArray[np.int64]
    odd: NDArray[np.bool_]


class Texts:
    """The properties in [starts, ends) of `buffer`, which has TEXT_BYTES_MAX more bytes."""

    def __init__(self, buffer: bytes | bytearray, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        rows = len(starts)
        sizes = ends - starts
        self.long = sizes > TEXT_BYTES_MAX
        sizes = np.where(self.long, 0, sizes)
        width = -(-(int(sizes.max(initial=0)) + 1) // HEAD_BYTES) * HEAD_BYTES
        everywhere = np.ndarray(len(buffer) - width + 1, f"V{width}", buffer, 0, (1,))
        # a short value is read together with bytes before the rows, a head with bytes after them
        self._text = np.zeros(VALUE_BYTES_MAX + rows * width + HEAD_BYTES, np.uint8)
        table = self._text[VALUE_BYTES_MAX : VALUE_BYTES_MAX + rows * width].reshape(rows, width)
        table[:] = everywhere[starts].view(np.uint8).reshape(rows, width)
        table[np.arange(rows), sizes] = PIECE_END
        is_end = (table == PIECE_END) & (
            np.arange(width, dtype=np.uint16) <= sizes.astype(np.uint16)[:, None]
        )
        ends = np.flatnonzero(is_end)
        self._rows = ends // width
        begins = np.append(0, ends + 1)[:-1]
        new_row = np.flatnonzero(self._rows[1:] != self._rows[:-1]) + 1
        begins[new_row] = self._rows[new_row] * width
        self._ends, self._begins = ends + VALUE_BYTES_MAX, begins + VALUE_BYTES_MAX
        words = np.ndarray(len(self._text) - HEAD_BYTES + 1, "<u8", self._text, 0, (1,))
        self._heads = words[self._begins].astype(np.uint64)
        self._count = rows

    def values(self, name: bytes, *, one_word: bool = False) -> Values:
        """Values of the property `name`. With `one_word`, a row whose value has a space is odd."""
        wanted = name + bytes([NAME_END])
        head = wanted[:HEAD_BYTES]
        heads = self._heads
        if len(head) < HEAD_BYTES:
            heads = heads & np.uint64((1 << 8 * len(head)) - 1)
        found = np.flatnonzero(heads == np.uint64(int.from_bytes(head, "little")))
        begins, ends = self._begins[found] + len(wanted), self._ends[found]
        good = begins < ends
        if len(wanted) > HEAD_BYTES:
            assert len(wanted) == HEAD_BYTES + 1
            good &= self._text[begins - 1] == NAME_END
        if not good.all():
            found, begins, ends = found[good], begins[good], ends[good]
        rows = self._rows[found]
        stops, sizes = np.full(self._count, VALUE_BYTES_MAX), np.zeros(self._count, np.int64)
        stops[rows], sizes[rows] = ends, ends - begins  # if a name repeats in a row, its last value stays
        given = sizes > 0
        odd = self.long | (sizes > VALUE_BYTES_MAX)
        sizes = np.where(odd, 0, sizes)
        width = max(int(sizes.max(initial=0)), 1)
        everywhere = np.ndarray(len(self._text) - width + 1, f"V{width}", self._text, 0, (1,))
        table = everywhere[stops - width].view(np.uint8).reshape(-1, width)  # values end where their rows do
        table *= np.arange(width) >= width - sizes[:, None]
        if self._count and int(table.max()) > 0x7F:
            odd |= (table > 0x7F).any(axis=1)
        if one_word:
            odd |= (table == SPACE).any(axis=1)
        hashes = table.astype(np.uint32) @ POWERS[:width][::-1]
        return Values(given & ~odd, hashes, sizes, odd)


def key_hashes(prefix_hashes: NDArray[np.uint32], values: Values) -> NDArray[np.int64]:
    """`index.file.key_hash` of the values, each continued from its prefix hash."""
    whole = (prefix_hashes * POWERS[values.sizes] + values.hashes).astype(np.int64)
    whole = np.where(whole > I32_MAX, (1 << 32) - whole, whole)
    return np.where(whole > I32_MAX, 0, whole)
