"""Record boundaries of one stretch of a segment, a chunk at a time.

Invariant: chunks follow each other without a gap, a record lies whole in one chunk, and every boundary was reached from the
one before by its size, so that what looks like a record inside a body is never taken for one."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from messagestore.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN
from sparkreplay.errors import LogCorrupted, SegmentGone
from sparkreplay.files import Files
from sparkreplay.store import Segment

CHUNK_BYTES = 4 << 20
RECORD_SIZE_MAX = (4 << 20) + (64 << 10)
SIZE_AND_MAGIC = struct.Struct(">Q")


@dataclass(frozen=True)
class Stretch:
    """A part [start, end) of one segment. It begins at a record; it ends at one unless `at_bound`."""

    segment: Segment
    start: int
    end: int
    at_bound: bool = False
    """The end is the committed bound: it may lie inside a record, which then is left out."""
    source: int = 0
    """Which store of the read it lies in."""


@dataclass(frozen=True)
class Chunk:
    """Whole records in `data`; the buffer is used again for the next chunk."""

    data: NDArray[np.uint8]
    start_offset: int
    positions: NDArray[np.int64]
    """Where in `data` each record begins; the last one ends at the end of `data`."""


def chunks_of(files: Files, stretch: Stretch, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """Raises LogCorrupted where the stretch does not hold what its plan says, SegmentGone where its file was deleted."""
    segment = stretch.segment
    capacity = chunk_bytes + RECORD_SIZE_MAX
    buffer = np.empty(min(capacity, stretch.end - stretch.start), np.uint8)
    view = buffer.data
    try:
        file = files.open(segment.name)
    except FileNotFoundError:
        raise SegmentGone(segment.path) from None
    try:
        at = stretch.start
        held = 0
        while True:
            want = min(len(buffer), stretch.end - at)
            held += file.read_into(view[held:want], at + held - segment.start_offset)
            if held < want:
                raise LogCorrupted(
                    segment.path, at + held, "the file ends before the planned end of the read"
                )
            ends = at + held == stretch.end
            positions, used, blank = boundaries(view[:held], segment, at, stretch)
            if positions:
                yield Chunk(buffer[:used], at, np.array(positions, np.int64))
            if blank and not stretch.at_bound and stretch.end != segment.end_offset:
                raise LogCorrupted(
                    segment.path, at + used, f"the file's records end before the seam at {stretch.end}"
                )
            if blank or (ends and (used == held or stretch.at_bound)):
                return
            if ends:
                raise LogCorrupted(segment.path, at + used, f"a record crosses the seam at {stretch.end}")
            view[: held - used] = view[used:held]
            at += used
            held -= used
    finally:
        file.close()


def boundaries(view: memoryview, segment: Segment, at: int, stretch: Stretch) -> tuple[list[int], int, bool]:
    """Positions of the whole records in `view` (its first byte is at offset `at`), their end, and whether a BLANK follows."""
    positions: list[int] = []
    append = positions.append
    unpack = SIZE_AND_MAGIC.unpack_from
    position, size = 0, len(view)
    while position + 8 <= size:
        word = unpack(view, position)[0]
        magic = word & 0xFFFFFFFF
        record_size = word >> 32
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            if magic == MAGIC_BLANK:
                if at + position + record_size != segment.end_offset:
                    raise LogCorrupted(
                        segment.path, at + position, "the end-of-file record does not end the file"
                    )
                return positions, position, True
            raise LogCorrupted(
                segment.path, at + position, f"no record starts here, below the bound {stretch.end}"
            )
        if not RECORD_SIZE_MIN <= record_size <= RECORD_SIZE_MAX:
            raise LogCorrupted(segment.path, at + position, f"record size {record_size} is impossible")
        if position + record_size > size:
            break
        append(position)
        position += record_size
    return positions, position, False
