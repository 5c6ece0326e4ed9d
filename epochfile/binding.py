"""Binding of an epoch history to its log: the store's owner, and checksums of the log where each epoch begins.

    CRC-32 of all following bytes
    owner 2                                  broker id, `-` while it is not known
    3-20480 1A2B3C4D -                       epoch-startOffset and two digests, one line an entry, oldest first

The digests of an entry are the CRC-32 of the last bytes before its start offset, and of the first bytes after it. A digest is
`-` until its bytes are confirmed; confirmed bytes never change.

Invariant: a history is accepted for a log only if it agrees with the binding on every byte of the log, and the log's bytes
still have the stored digests. Pure."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from epochfile.entry import EpochEntry
from epochfile.history import EpochHistory, EpochOutOfOrder

BEFORE_BYTES = 512
AFTER_BYTES = 88
"""The length of the fixed fields of the shortest record: position, queue offset, times, host and the body's CRC."""
_LINE = re.compile(rb"(\d{1,10})-(\d{1,19}) (-|[0-9A-F]{8}) (-|[0-9A-F]{8})")
_OWNER = re.compile(rb"owner (-|\d{1,19})")


class BindingDamaged(ValueError):
    """Bytes that are not a whole binding."""


class SegmentSpan(NamedTuple):
    """Bytes [start, end) of the log, all in one segment."""

    start: int
    end: int


class Seal(NamedTuple):
    """Digests of the log at one entry's start; None where unknown."""

    entry: EpochEntry
    before: int | None = None
    after: int | None = None


class Parted(NamedTuple):
    """The first byte of the log that two histories assign to different epochs, and those two epochs, -1 for a history without
    an epoch there."""

    offset: int
    epoch: int
    bound_epoch: int


def span_before(entry: EpochEntry, segment_size_bytes: int) -> SegmentSpan | None:
    """The span before an epoch's start; None at the very beginning of a log."""
    end = entry.start_offset
    if end == 0:
        return None
    return SegmentSpan(max(end - BEFORE_BYTES, (end - 1) // segment_size_bytes * segment_size_bytes), end)


def span_after(entry: EpochEntry, segment_size_bytes: int) -> SegmentSpan:
    start = entry.start_offset
    return SegmentSpan(
        start, min(start + AFTER_BYTES, (start // segment_size_bytes + 1) * segment_size_bytes)
    )


class Binding:
    """An immutable value: a change returns a new binding, which can be stored before it is used."""

    __slots__ = ("owner", "seals")

    def __init__(self, seals: Iterable[Seal] = (), owner: int | None = None) -> None:
        self.seals = tuple(seals)
        self.owner = owner

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Binding) and (self.seals, self.owner) == (other.seals, other.owner)

    def __hash__(self) -> int:
        return hash((self.seals, self.owner))

    @property
    def history(self) -> EpochHistory:
        return EpochHistory(seal.entry for seal in self.seals)

    def of(self, history: EpochHistory, owner: int | None) -> Binding:
        """The binding of `history` in the same log; unchanged entries keep their digests."""
        known = {seal.entry: seal for seal in self.seals}
        return Binding((known.get(entry) or Seal(entry) for entry in history), owner)

    def parted(self, history: EpochHistory, log_min: int, log_end: int) -> Parted | None:
        """The first disagreement between `history` and this binding about the log's bytes. Epochs that begin at the log's end
        or ended at its beginning do not count, because a crash may leave them in only one of the two files."""
        ours, theirs = (
            [entry for entry in some.truncate_prefix(log_min) if entry.start_offset < log_end]
            for some in (self.history, history)
        )
        for place in range(max(len(ours), len(theirs))):
            ours_here, theirs_here = ours[place : place + 1], theirs[place : place + 1]
            if ours_here != theirs_here:
                offset = min(entry.start_offset for entry in (*ours_here, *theirs_here))
                return Parted(offset, _epoch_at(history, offset), _epoch_at(self.history, offset))
        return None

    def encode(self) -> bytes:
        lines = [f"owner {'-' if self.owner is None else self.owner}"]
        lines += [
            f"{entry.epoch}-{entry.start_offset} {_shown(before)} {_shown(after)}"
            for entry, before, after in self.seals
        ]
        text = "".join(f"{line}\n" for line in lines).encode()
        return b"%d\n%b" % (zlib.crc32(text), text)


def _epoch_at(history: EpochHistory, offset: int) -> int:
    entry = history.entry_at(offset)
    return -1 if entry is None else entry.epoch


def _shown(digest: int | None) -> str:
    return "-" if digest is None else f"{digest:08X}"


def decode_binding(data: bytes) -> Binding:
    """Decode a binding. Raises BindingDamaged with the reason."""
    crc, _, text = data.partition(b"\n")
    if crc != b"%d" % zlib.crc32(text) or not text.endswith(b"\n"):
        raise BindingDamaged(f"{len(data)} bytes whose CRC does not agree")
    first, *rows = text[:-1].split(b"\n")
    owner = _OWNER.fullmatch(first)
    matches = [_LINE.fullmatch(row) for row in rows]
    if owner is None or None in matches:
        raise BindingDamaged("lines of another kind than `owner` and epoch-startOffset")
    seals = [
        Seal(EpochEntry(int(match[1]), int(match[2])), _digest(match[3]), _digest(match[4]))
        for match in matches
        if match is not None
    ]
    try:
        EpochHistory(seal.entry for seal in seals)
    except EpochOutOfOrder as error:
        raise BindingDamaged(str(error)) from error
    return Binding(seals, None if owner[1] == b"-" else int(owner[1]))


def _digest(shown: bytes) -> int | None:
    return None if shown == b"-" else int(shown, 16)
