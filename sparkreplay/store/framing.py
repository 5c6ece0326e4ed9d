"""The framing of records in a segment's file. In a commit log records follow one another directly. In a ledger (the log of a
Raft-mode broker) each record is in an entry (ledgerframing.py).

A frame is a record together with the bytes before it that frame it, if there are any. A boundary is where a frame begins.
Invariant: code that reads a segment uses the segment's framing, so it is the same for all kinds of logs. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from messagestore.bulk.lockstep import boundaries_in_step
from messagestore.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN
from sparkreplay.errors import LogCorrupted
from sparkreplay.store.cutrecord import contradiction

RECORD_SIZE_MAX = (64 << 20) + (64 << 10)
"""Brokers accept bodies up to maxMessageSize (4 MiB) in remoting frames of at most 16 MiB. Both limits can be set higher."""
SIZE_AND_MAGIC = struct.Struct(">Q")
PREFIX = struct.Struct(">II")
PREFIX_BYTES = 8
"""This many bytes of any frame, or of a file's end record, are enough for its size and kind."""
SAMPLE_RECORDS = 32
IN_STEP_RECORD_BYTES_MAX = 4096
"""If records are larger on average, they are walked one by one, because a chunk has too few of them for the bulk path."""

Places: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class SegmentPart:
    """Says what a buffer holds: bytes of the segment at `path`, from physical offset `start` on. `bound` is the read's end."""

    path: str
    start: int
    segment_end: int
    bound: int


@dataclass(frozen=True)
class RecordChunk:
    """Whole records, concatenated in `data`. The buffer may be reused for the next chunk."""

    data: NDArray[np.uint8]
    positions: Places
    """The positions in `data` where records begin. The last record ends at the end of `data`."""
    offsets: Places
    """The physical offset of each record."""
    end_offset: int
    """The end of the walked frames, which is a boundary."""


class Framing(Protocol):
    """The framing of one kind of log. Parameters named `window` are bytes that begin at physical offset `offset`."""

    @property
    def lead_bytes(self) -> int:
        """How many bytes before its record a frame begins."""

    def frames(self, buffer: bytearray, held: int, part: SegmentPart) -> tuple[Places, int, bool]:
        """Find the whole frames in `buffer[:held]`, which begins at a boundary. Returns their positions, the end of the last
        one, and whether the file's records end there. Raises LogCorrupted for bytes that are no frame."""

    def records(self, buffer: bytearray, frames: Places, used: int, part: SegmentPart) -> RecordChunk:
        """The records of `frames`, which end at `used`. Raises LogCorrupted if a frame contradicts itself."""

    def size_of(self, window: bytes | bytearray) -> int:
        """The size in the frame at the beginning of `window`."""

    def contradiction(self, window: memoryview, offset: int) -> str | None:
        """A description of what is wrong with a frame in which the bound lies; None if nothing is. The frame's prefix is
        complete and was checked before."""

    def leads(self, lead: bytes, offset: int, record_bytes: int) -> bool:
        """Whether the bytes `lead` are those before a record of this size at physical offset `offset`."""

    def may_follow(self, prefix: bytes) -> bool:
        """Whether `prefix` begins another frame, the end of the file's records or unwritten space."""

    def begins_frame(self, window: bytes, offset: int, left: int) -> bool:
        """Whether a frame without a record, which a search for records would miss, or the end of the file's records is at this
        place, `left` bytes before the segment's end."""

    def ends_file(self, prefix: bytes) -> bool:
        """Whether `prefix` begins the end of the file's records."""

    def normalised(self, buffer: NDArray[np.uint8], offset: int) -> int:
        """Make those bytes of frames equal that may differ from replica to replica. The buffer begins at a boundary. Returns
        the end of the last whole frame, or the end of the buffer if the log's kind has no such bytes."""

    def first_boundary(self, window: NDArray[np.uint8], offset: int) -> int:
        """A position in `window` from which replicas can be compared."""


@dataclass(frozen=True)
class PlainFraming:
    """A commit log's framing: a record is its own frame."""

    @property
    def lead_bytes(self) -> int:
        return 0

    def frames(self, buffer: bytearray, held: int, part: SegmentPart) -> tuple[Places, int, bool]:
        positions, position, blank = one_by_one(buffer, 0, held, part, SAMPLE_RECORDS)
        found = np.array(positions, np.int64)
        if len(positions) < SAMPLE_RECORDS:
            return found, position, blank
        if position <= IN_STEP_RECORD_BYTES_MAX * SAMPLE_RECORDS:
            in_step = boundaries_in_step(
                buffer, held, part.start, strip_bytes=position, size_max=RECORD_SIZE_MAX
            )
            if in_step is not None:
                found, position = in_step[:-1], int(in_step[-1])
        positions, position, blank = one_by_one(buffer, position, held, part)
        return np.concatenate((found, np.array(positions, np.int64))), position, blank

    def records(self, buffer: bytearray, frames: Places, used: int, part: SegmentPart) -> RecordChunk:
        return RecordChunk(
            np.frombuffer(buffer, np.uint8, used), frames, part.start + frames, part.start + used
        )

    def size_of(self, window: bytes | bytearray) -> int:
        return int(PREFIX.unpack_from(window)[0])

    def contradiction(self, window: memoryview, offset: int) -> str | None:
        return contradiction(window, offset)

    def leads(self, lead: bytes, offset: int, record_bytes: int) -> bool:
        return True

    def may_follow(self, prefix: bytes) -> bool:
        return PREFIX.unpack(prefix)[1] in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK, 0)

    def begins_frame(self, window: bytes, offset: int, left: int) -> bool:
        """Whether a BLANK record is there. A BLANK that the end of the window cuts off counts too."""
        return len(window) < PREFIX.size or PREFIX.unpack_from(window) == (left, MAGIC_BLANK)

    def ends_file(self, prefix: bytes) -> bool:
        return bool(PREFIX.unpack(prefix)[1] == MAGIC_BLANK)

    def normalised(self, buffer: NDArray[np.uint8], offset: int) -> int:
        return len(buffer)

    def first_boundary(self, window: NDArray[np.uint8], offset: int) -> int:
        return 0


PLAIN = PlainFraming()


def one_by_one(
    buffer: bytearray, position: int, held: int, part: SegmentPart, count_max: int = RECORD_SIZE_MAX
) -> tuple[list[int], int, bool]:
    """The result of `PlainFraming.frames` for at most `count_max` frames from `position` on, walked one by one."""
    positions: list[int] = []
    append = positions.append
    unpack = SIZE_AND_MAGIC.unpack_from
    while position + 8 <= held and len(positions) < count_max:
        word = unpack(buffer, position)[0]
        magic = word & 0xFFFFFFFF
        record_size = word >> 32
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            if magic == MAGIC_BLANK:
                if part.start + position + record_size != part.segment_end:
                    raise LogCorrupted(
                        part.path, part.start + position, "the end-of-file record does not end the file"
                    )
                return positions, position, True
            raise LogCorrupted(
                part.path, part.start + position, f"no record starts here, below the bound {part.bound}"
            )
        if not RECORD_SIZE_MIN <= record_size <= RECORD_SIZE_MAX:
            raise LogCorrupted(part.path, part.start + position, impossible(record_size))
        if position + record_size > held:
            break
        append(position)
        position += record_size
    return positions, position, False


def impossible(record_size: int) -> str:
    return (
        f"record size {record_size} is impossible: records have {RECORD_SIZE_MIN} to {RECORD_SIZE_MAX} bytes"
    )
