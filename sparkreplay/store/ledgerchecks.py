"""The check values of a ledger's entries. A check is a CRC-32 of all other bytes of the entry, continued from the check of the
entry before (dledger.storage.entry). Java writes 0 instead, so a check of 0 is not compared.

Invariant: an entry's check is computed from the entry's own bytes and the stored check of the entry before. So each reported
entry has changed itself, or follows an entry whose stored check has changed. An entry is not compared if the check of the entry
before is unavailable."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

from sparkreplay.store.files import OpenFile
from sparkreplay.store.ledgerframing import CHECK_AT, CHECK_END, HEADER, LEDGER, entry_head, entry_place
from sparkreplay.store.ledgerindex import DATA_READ_BYTES, read_at
from sparkreplay.store.segments import Segment


class SegmentWindow:
    """The bytes of a segment below physical offset `end`, read a few MiB at a time."""

    def __init__(self, file: OpenFile, segment: Segment, end: int) -> None:
        self.file = file
        self.segment_start = segment.start_offset
        self.end = end
        self.start = segment.start_offset
        self.held = memoryview(b"")

    def at(self, offset: int, size: int) -> memoryview:
        """Bytes of the segment. There are fewer than `size` bytes if the end is reached."""
        size = min(size, self.end - offset)
        if not self.start <= offset <= offset + size <= self.start + len(self.held):
            room = min(max(size, DATA_READ_BYTES), self.end - offset)
            self.start, self.held = (
                offset,
                memoryview(read_at(self.file, offset - self.segment_start, room)),
            )
        return self.held[offset - self.start :][:size]


def broken_checks(
    file: OpenFile, segment: Segment, end: int, before: int | None
) -> Iterator[tuple[int, str]]:
    """Physical offset and description of each entry of a segment that lies below `end` and differs from what was written.
    `before` is the check of the last entry before the segment, or None if unknown."""
    window = SegmentWindow(file, segment, end)
    at: int | None = segment.start_offset
    while at is not None and at < end:
        head = entry_head(window.at(at, HEADER.size), at)
        if head is None:  # a blank, the bound, or damage that a walk reports
            at, before = next_entry(window, at), None
            continue
        entry = window.at(at, head.size)
        if len(entry) < head.size:
            return
        if head.check and before is not None and check_of(entry, before) != head.check:
            yield at, f"entry {head.index} is not what was written: its check differs"
        at, before = at + head.size, head.check


def check_of(entry: memoryview, before: int) -> int:
    """The check of a whole entry; never 0."""
    return crc32(entry[CHECK_END:], crc32(entry[:CHECK_AT], before)) or 0xFFFFFFFF


def next_entry(window: SegmentWindow, at: int) -> int | None:
    """The first entry after `at`; None after the last entry of a file."""
    prefix = window.at(at, 8)
    if len(prefix) < 8 or LEDGER.ends_file(bytes(prefix)):
        return None
    at += 1
    while len(data := window.at(at, DATA_READ_BYTES)) >= HEADER.size:
        place = entry_place(bytes(data), at)
        if place is not None:
            return at + place
        at += len(data) - HEADER.size + 1
    return None
