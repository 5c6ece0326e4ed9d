"""The files of a log, as readers see them: one byte sequence over segment files of equal size.

Invariant: what is read lies in the log, in one segment, and was there when the call began; views are of the mapping, bytes are
read around it."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from messagestore.errors import OffsetOutOfRange
from messagestore.log.retention import Segment
from messagestore.record import PREFIX
from messagestore.walker import segment_name
from mqruntime.log import fields
from mqruntime.repeatedfailures import RepeatedFailures
from mqruntime.segments import SegmentFile

logger = logging.getLogger(__name__)

T = TypeVar("T")

AT_HAND_BYTES = 64 << 20
"""What was written last is taken to be in memory; of what is older a look at one page tells, for the kernel reads ahead."""
LOOK_BYTES = 64 << 10
"""To look at so many costs less than one more look."""
GAP_BYTES = 32 << 10
"""To read so many that nobody wants costs less than one more read."""
PIECE_BYTES = 1 << 20
"""Of what lies close together no more is read at once: many who lag read at the same time."""


class Place(NamedTuple):
    """Where a record goes: `view[at]` on, which is `offset` of the log."""

    view: memoryview
    at: int
    offset: int


class Room(NamedTuple):
    """Where records go that follow each other: the first to `view[at]` on, which is `offset` of the log. Between two of them
    lie `gap` bytes of the view, which stay as they are, and `lead` of the log."""

    view: memoryview
    at: int
    offset: int
    gap: int = 0
    lead: int = 0


class LogFiles(ABC):
    """Offsets are physical. Whoever inherits moves `_first` and `_end`, the bounds of what can be read."""

    def __init__(self, segment_size: int, hot_segments: int) -> None:
        self.segment_size_bytes = segment_size
        self.record_bytes_max = segment_size - PREFIX.size
        self._hot_segments = hot_segments
        self._ageless = RepeatedFailures()
        self._first = 0  # start of the oldest segment
        self._end = 0

    @property
    def min_offset(self) -> int:
        return self._first

    @property
    def max_offset(self) -> int:
        return self._end

    @property
    @abstractmethod
    def has_segments(self) -> bool:
        """A log that ever held a byte has one: the oldest stays, whatever is cut."""

    @property
    @abstractmethod
    def flushed_offset(self) -> int:
        """What ends at or below this is on disk."""

    @abstractmethod
    def _file_at(self, offset: int) -> tuple[SegmentFile, int]:
        """(the segment that holds `offset`, its start). OffsetOutOfRange below the log's first."""

    @abstractmethod
    async def is_boundary(self, offset: int) -> bool:
        """Whether a record, or the end of a segment's records, begins at `offset`. OSError."""

    @abstractmethod
    def first_record(self) -> int | None:
        """Where the first one begins; None where none stands at the log's beginning."""

    # What the appender asks

    @abstractmethod
    def places(self, sizes: list[int]) -> list[Place]:
        """Where records of these sizes are to be written, one behind the other: all, before `grow`. OSError, LogTakesNothing:
        the log is unchanged."""

    @abstractmethod
    def room(self, sizes: list[int]) -> Room | None:
        """The same where all of them have room in the segment of the log's end; else None."""

    @abstractmethod
    def grow(self, end: int) -> None:
        """The records up to `end` are complete in their places."""

    @abstractmethod
    def has_room_for(self, size: int) -> bool:
        """Whether `size` bytes, less than half a segment, find a place, as far as the disk is concerned."""

    # What retention asks

    @abstractmethod
    async def segments_behind_first(self, count_max: int) -> list[Segment]:
        """The oldest segments without the one that the log ends in, `count_max` at most, and how old they are, as far as that
        can be read."""

    @abstractmethod
    def begin_at(self, offset: int) -> None:
        """The log begins at `offset`, where a segment does: those below are no part of it any more, but on disk until
        `delete_former`. All of them are flushed, and are not the last."""

    @abstractmethod
    async def delete_former(self) -> list[SegmentFile]:
        """Deletes the files of segments that are no part of the log any more, oldest first and each durably, so that no gap
        can arise; they are to be released. OSError: the rest stays for the next call."""

    def _tell_ageless(self, start: int, error: OSError) -> None:
        if self._ageless.failed(start, int(asyncio.get_running_loop().time() * 1000)):
            logger.warning(
                "how old a segment is cannot be read: it counts as old as the next one",
                extra=fields(segment=segment_name(start), why=error),
            )

    # Reading

    def segment_start(self, offset: int) -> int:
        return offset - offset % self.segment_size_bytes

    def is_cold(self, offset: int) -> bool:
        """Whether bytes at `offset` are to be read with `read_cold`: older than the newest few segments, or not in memory."""
        if offset >= self._end - AT_HAND_BYTES or offset < self._first:
            return offset < self.cold_end
        file, start = self._file_at(offset)
        return offset < self.cold_end or not file.is_cached(offset - start, offset - start + 1)

    def in_memory(self, ranges: list[tuple[int, int]]) -> bool:
        """Whether a look at each (offset, size) of the log, in order, waits for no disk. Ranges that lie close together, as
        those of one queue do, are looked for with all that is between them, and one by one only where some of that is lost."""
        start, (last, last_size) = ranges[0][0], ranges[-1]
        if start >= max(self._end - AT_HAND_BYTES, self.cold_end):
            return True
        span = last + last_size - start
        if len(ranges) > 1 and span < len(ranges) * LOOK_BYTES and self._is_cached(start, span):
            return True
        return all(self._is_cached(offset, size) for offset, size in ranges)

    def _is_cached(self, offset: int, size: int) -> bool:
        """False for more than a segment holds."""
        file, start = self._file_at(offset)
        end = offset + size - start
        return end <= self.segment_size_bytes and file.is_cached(offset - start, end)

    @property
    def cold_end(self) -> int:
        """Where the newest few segments begin."""
        return self.segment_start(self._end) - (self._hot_segments - 1) * self.segment_size_bytes

    def segment_view(self, offset: int) -> tuple[memoryview, int]:
        """(whole mapped segment that holds `offset`, its start offset). OffsetOutOfRange below the log's first."""
        file, start = self._file_at(offset)
        return file.view(), start

    def read(self, offset: int, size_max: int) -> memoryview:
        """Up to `size_max` log bytes at `offset`, ending with the segment or the log; empty at the end."""
        end = self._readable_end(offset, size_max)
        if end == offset:
            return memoryview(b"")
        view, start = self.segment_view(offset)
        return view[offset - start : end - start].toreadonly()

    def at_hand(self, offset: int, size: int) -> memoryview | None:
        """`read`, where it waits for no disk; else None."""
        end = self._end
        tail = end - end % self.segment_size_bytes
        if offset < tail or offset + size > end or offset < end - AT_HAND_BYTES:
            return None if self.is_cold(offset) else self.read(offset, size)
        view = self._file_at(tail)[0].view()
        return view[offset - tail : offset - tail + size].toreadonly()

    def views(self, ranges: list[tuple[int, int]]) -> list[memoryview]:
        """`read` of each (offset, size), in order."""
        first, (last, last_size) = ranges[0][0], ranges[-1]
        if last + last_size > self._end or self.segment_start(first) != self.segment_start(last):
            return [self.read(offset, size) for offset, size in ranges]
        view, start = self.segment_view(first)
        view = view.toreadonly()
        return [view[offset - start : offset - start + size] for offset, size in ranges]

    async def read_cold(self, offset: int, size_max: int) -> bytes:
        """As `read`, around the mapping; OSError when the disk fails."""
        return await self.read_file(offset, self._readable_end(offset, size_max))

    async def read_cold_each(self, ranges: list[tuple[int, int]]) -> list[bytes]:
        """`read_cold` of each (offset, size), in order; those that lie close together, as a queue's do, are one read."""
        found = []
        for near in self._close_together(ranges):
            start, (last, last_size) = near[0][0], near[-1]
            content = await self.read_cold(start, last + last_size - start)
            found += [content[offset - start : offset - start + size] for offset, size in near]
        return found

    def _close_together(self, ranges: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
        """Parts of `ranges` whose gaps are small, each of one segment and, but for one that is larger, of PIECE_BYTES."""
        near, end = [ranges[0]], sum(ranges[0])
        for offset, size in ranges[1:]:
            begin = near[0][0]
            apart = not end <= offset <= end + GAP_BYTES or offset + size - begin > PIECE_BYTES
            if apart or self.segment_start(offset) != self.segment_start(begin):
                yield near
                near = []
            near.append((offset, size))
            end = offset + size
        yield near

    async def read_file(self, offset: int, end: int) -> bytes:
        """Bytes [offset, end) of one segment file, whether or not they belong to the log yet. OffsetOutOfRange below its
        first, OSError."""
        if end == offset:
            return b""
        file, start = self._file_at(offset)
        return await file.read_cold(offset - start, end - start)

    async def examine(self, offset: int, end: int, use: Callable[[bytes], T]) -> T:
        """What `use` makes of the bytes [offset, end) of one segment file, beside the event loop. OffsetOutOfRange below the
        log's first, OSError."""
        file, start = self._file_at(offset)
        return await file.examine(offset - start, end - start, use)

    def _readable_end(self, offset: int, size_max: int) -> int:
        if not self._first <= offset <= self._end:
            raise OffsetOutOfRange(offset, self._first, self._end)
        return min(offset + size_max, self._end, self.segment_start(offset) + self.segment_size_bytes)
