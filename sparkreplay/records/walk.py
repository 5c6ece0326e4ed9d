"""Record boundaries of one stretch of a segment, a chunk at a time.

Invariant: chunks follow each other without a gap, a record lies whole in one chunk, and every boundary was reached from the
one before by its size, so that what looks like a record inside a body is never taken for one."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from messagestore.bulk.lockstep import boundaries_in_step
from messagestore.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, PREFIX, RECORD_SIZE_MIN
from sparkreplay.errors import LogCorrupted, SeamMisplaced, SegmentGone
from sparkreplay.records.cutrecord import contradiction
from sparkreplay.store.files import Files
from sparkreplay.store.snapshot import Segment

CHUNK_BYTES = 4 << 20
"""As much as stays in the processor's cache from the read to the last column."""
RECORD_SIZE_MAX = (64 << 20) + (64 << 10)
"""Brokers take bodies up to their maxMessageSize (4 MiB) from frames of at most 16 MiB; both can be set higher."""
HEAP_HINT_BYTES = 24 << 20
"""A block of this size, allocated and freed untouched, makes glibc keep up to twice as much freed memory: otherwise the columns
of every chunk are made of new pages, which costs more than making the columns."""
SIZE_AND_MAGIC = struct.Struct(">Q")
SAMPLE_RECORDS = 32
IN_STEP_RECORD_BYTES_MAX = 4096
"""Records that are larger on average are walked one by one: so few a chunk do not pay for more."""


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

    @property
    def offsets(self) -> NDArray[np.int64]:
        """The physical offset of each record."""
        return self.start_offset + self.positions


def chunks_of(files: Files, stretch: Stretch, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """Raises LogCorrupted where the stretch does not hold what its plan says, SegmentGone where its file was deleted.

    Chunks have at most `chunk_bytes` (and at least eight bytes of room), or one record that is larger."""
    segment = stretch.segment
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
            positions, used, blank = boundaries(buffer, held, segment, at, stretch)
            if len(positions):
                yield Chunk(np.frombuffer(buffer, np.uint8, used), at, positions)
            if blank and not stretch.at_bound and stretch.end != segment.end_offset:
                raise SeamMisplaced(segment.path, at + used, "the file's records end before", stretch.end)
            if ends and not blank and stretch.at_bound and held - used >= SIZE_AND_MAGIC.size:
                wrong = contradiction(memoryview(buffer)[used:held], at + used)
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
            else:  # one record that is larger
                buffer = bytearray(min(PREFIX.unpack_from(rest)[0], stretch.end - at))
            buffer[: len(rest)] = rest
            at += used
            held = len(rest)
    finally:
        file.close()


def boundaries(
    buffer: bytearray, held: int, segment: Segment, at: int, stretch: Stretch
) -> tuple[NDArray[np.int64], int, bool]:
    """Positions of the whole records in `buffer[:held]` (its first byte is at offset `at`), their end, and whether a BLANK
    follows. Raises LogCorrupted for anything else that stands between them."""
    positions, position, blank = one_by_one(buffer, 0, held, segment, at, stretch, SAMPLE_RECORDS)
    found = np.array(positions, np.int64)
    if len(positions) < SAMPLE_RECORDS:
        return found, position, blank
    if position <= IN_STEP_RECORD_BYTES_MAX * SAMPLE_RECORDS:
        in_step = boundaries_in_step(buffer, held, at, strip_bytes=position, size_max=RECORD_SIZE_MAX)
        if in_step is not None:
            found, position = in_step[:-1], int(in_step[-1])
    positions, position, blank = one_by_one(buffer, position, held, segment, at, stretch)
    return np.concatenate((found, np.array(positions, np.int64))), position, blank


def one_by_one(
    buffer: bytearray,
    position: int,
    held: int,
    segment: Segment,
    at: int,
    stretch: Stretch,
    count_max: int = RECORD_SIZE_MAX,
) -> tuple[list[int], int, bool]:
    """`boundaries` from `position` on, as a plain walk, at most `count_max` of them."""
    positions: list[int] = []
    append = positions.append
    unpack = SIZE_AND_MAGIC.unpack_from
    while position + 8 <= held and len(positions) < count_max:
        word = unpack(buffer, position)[0]
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
            raise LogCorrupted(
                segment.path,
                at + position,
                f"record size {record_size} is impossible: what is read has {RECORD_SIZE_MIN} to {RECORD_SIZE_MAX} bytes",
            )
        if position + record_size > held:
            break
        append(position)
        position += record_size
    return positions, position, False
