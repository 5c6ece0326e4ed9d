"""Find the record boundaries of one stretch of a segment, one chunk at a time.

Invariant: chunks are contiguous, and each record lies whole in one chunk. Every boundary is reached from the boundary before
it by the record's size, so bytes inside a body are never taken for a record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sparkreplay.errors import LogCorrupted, SeamMisplaced, SegmentGone
from sparkreplay.store.files import Files
from sparkreplay.store.framing import PREFIX_BYTES, RecordChunk, SegmentPart
from sparkreplay.store.snapshot import Segment

CHUNK_BYTES = 4 << 20
"""A chunk of this size stays in the processor's cache until its last column is made."""
HEAP_HINT_BYTES = 24 << 20
"""A block of this size is allocated and freed untouched, so that glibc keeps up to twice as much freed memory. Otherwise the
columns of every chunk would get new pages, which costs more than making the columns."""


@dataclass(frozen=True)
class Stretch:
    """A part [start, end) of one segment. It begins at a boundary, and ends at a boundary unless `at_bound`."""

    segment: Segment
    start: int
    end: int
    at_bound: bool = False
    """Whether the end is the committed bound, which may lie inside a record. That record is left out."""
    source: int = 0
    """The number of the store in the read."""


def chunks_of(files: Files, stretch: Stretch, chunk_bytes: int = CHUNK_BYTES) -> Iterator[RecordChunk]:
    """The chunks of a stretch. Raises LogCorrupted if the stretch contradicts its plan, and SegmentGone if its file was
    deleted.

    A chunk has at most `chunk_bytes`, with at least eight bytes of room, or holds a single larger record."""
    segment = stretch.segment
    framing = segment.framing
    np.empty(HEAP_HINT_BYTES, np.uint8)
    try:
        file = files.open(segment.name)
    except FileNotFoundError:
        raise SegmentGone(segment.path) from None
    try:
        buffer = usual = bytearray(min(chunk_bytes, stretch.end - stretch.start))
        at = stretch.start
        held = 0
        while True:
            want = min(len(buffer), stretch.end - at)
            held += file.read_into(memoryview(buffer)[held:want], at + held - segment.start_offset)
            if held < want:
                raise LogCorrupted(
                    segment.path, at + held, "the file ends before the planned end of the read"
                )
            ends = at + held == stretch.end
            part = SegmentPart(segment.path, at, segment.end_offset, stretch.end)
            frames, used, blank = framing.frames(buffer, held, part)
            chunk = framing.records(buffer, frames, used, part)
            if len(chunk.positions):
                yield chunk
            if blank and not stretch.at_bound and stretch.end != segment.end_offset:
                raise SeamMisplaced(segment.path, at + used, "the file's records end before", stretch.end)
            if ends and not blank and stretch.at_bound and held - used >= PREFIX_BYTES:
                wrong = framing.contradiction(memoryview(buffer)[used:held], at + used)
                if wrong is not None:
                    raise LogCorrupted(segment.path, at + used, wrong)
            if blank or (ends and (used == held or stretch.at_bound)):
                return
            if ends and stretch.end == segment.end_offset:
                raise LogCorrupted(segment.path, at + used, "a record crosses the end of its file")
            if ends:
                raise SeamMisplaced(segment.path, at + used, "a record crosses", stretch.end)
            rest = buffer[used:held]
            if used:
                buffer = usual
            else:  # a single larger record
                buffer = bytearray(min(framing.size_of(rest), stretch.end - at))
            buffer[: len(rest)] = rest
            at += used
            held = len(rest)
    finally:
        file.close()
