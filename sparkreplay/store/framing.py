"""How the records of a segment lie in its file: end to end in a commit log, each in an entry in a ledger (ledgerframing.py).

A frame is a record with what stands in front of it; a boundary is where a frame begins. Invariant: who looks into a segment
asks its framing, and nothing else knows which of them it is. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from messagestore.bulk.lockstep import boundaries_in_step
from messagestore.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN
from sparkreplay.errors import LogCorrupted
from sparkreplay.records.cutrecord import contradiction

RECORD_SIZE_MAX = (64 << 20) + (64 << 10)
"""Brokers take bodies up to their maxMessageSize (4 MiB) from frames of at most 16 MiB; both can be set higher."""
SIZE_AND_MAGIC = struct.Struct(">Q")
PREFIX = struct.Struct(">II")
PREFIX_BYTES = 8
"""Of any frame, and of what ends a file: enough to tell its size and kind."""
SAMPLE_RECORDS = 32
IN_STEP_RECORD_BYTES_MAX = 4096
"""Records that are larger on average are walked one by one: so few a chunk do not pay for more."""

Places: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """What a buffer holds: bytes of the segment at `path` from physical offset `start` on. `bound` is the end of the read."""

    path: str
    start: int
    segment_end: int
    bound: int


@dataclass(frozen=True)
class Chunk:
    """Whole records in `data`, end to end; the buffer may be used again for the next chunk."""

    data: NDArray[np.uint8]
    positions: Places
    """Where in `data` each record begins; the last one ends at the end of `data`."""
    offsets: Places
    """The physical offset of each record."""
    end_offset: int
    """Of the frames that were walked: a boundary."""


class Framing(Protocol):
    """Methods that take a `window` are given bytes that begin at physical offset `offset`."""

    @property
    def lead_bytes(self) -> int:
        """How far in front of its record a frame begins."""

    def frames(self, buffer: bytearray, held: int, part: Part) -> tuple[Places, int, bool]:
        """Positions of the whole frames in `buffer[:held]`, which begins at a boundary, their end, and whether the file's
        records end there. Raises LogCorrupted for anything else that stands between them."""

    def records(self, buffer: bytearray, frames: Places, used: int, part: Part) -> Chunk:
        """The records of `frames`, which end at `used`. Raises LogCorrupted where a frame contradicts itself."""

    def size_of(self, window: bytes | bytearray) -> int:
        """The size that the frame at the beginning of `window` names."""

    def contradiction(self, window: memoryview, offset: int) -> str | None:
        """What is wrong with a frame that the bound cuts; its prefix is there and was checked."""

    def leads(self, lead: bytes, offset: int, record_bytes: int) -> bool:
        """Whether `lead` stands in front of a record of that size at physical offset `offset`."""

    def may_follow(self, prefix: bytes) -> bool:
        """Whether another frame, the end of the file's records or nothing may begin so."""

    def stands(self, window: bytes, offset: int, left: int) -> bool:
        """Whether a frame that a search for records may miss, or the end of the file's records, is there, `left` bytes before
        the segment's end."""

    def ends_file(self, prefix: bytes) -> bool:
        """Whether what begins so ends the file's records."""

    def levelled(self, buffer: NDArray[np.uint8], offset: int) -> int:
        """Makes alike, in the frames of a buffer that begins at a boundary, what replicas may have written differently; returns
        the end of the last whole one, or of the buffer where nothing stops it there."""

    def first_boundary(self, window: NDArray[np.uint8], offset: int) -> int:
        """A place in `window` from where on replicas can be compared."""


@dataclass(frozen=True)
class PlainFraming:
    """A commit log's: a record is its own frame."""

    @property
    def lead_bytes(self) -> int:
        return 0

    def frames(self, buffer: bytearray, held: int, part: Part) -> tuple[Places, int, bool]:
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

    def records(self, buffer: bytearray, frames: Places, used: int, part: Part) -> Chunk:
        return Chunk(np.frombuffer(buffer, np.uint8, used), frames, part.start + frames, part.start + used)

    def size_of(self, window: bytes | bytearray) -> int:
        return int(PREFIX.unpack_from(window)[0])

    def contradiction(self, window: memoryview, offset: int) -> str | None:
        return contradiction(window, offset)

    def leads(self, lead: bytes, offset: int, record_bytes: int) -> bool:
        return True

    def may_follow(self, prefix: bytes) -> bool:
        return PREFIX.unpack(prefix)[1] in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK, 0)

    def stands(self, window: bytes, offset: int, left: int) -> bool:
        """A BLANK; what is cut is taken for one."""
        return len(window) < PREFIX.size or PREFIX.unpack_from(window) == (left, MAGIC_BLANK)

    def ends_file(self, prefix: bytes) -> bool:
        return bool(PREFIX.unpack(prefix)[1] == MAGIC_BLANK)

    def levelled(self, buffer: NDArray[np.uint8], offset: int) -> int:
        return len(buffer)

    def first_boundary(self, window: NDArray[np.uint8], offset: int) -> int:
        return 0


PLAIN = PlainFraming()


def one_by_one(
    buffer: bytearray, position: int, held: int, part: Part, count_max: int = RECORD_SIZE_MAX
) -> tuple[list[int], int, bool]:
    """`PlainFraming.frames` from `position` on, as a plain walk, at most `count_max` of them."""
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
    return f"record size {record_size} is impossible: what is read has {RECORD_SIZE_MIN} to {RECORD_SIZE_MAX} bytes"
