"""The files of a log, as readers see them: one byte sequence over segment files of equal size.

Invariant: a read returns bytes of one segment that were in the log when the call began. A returned view is a part of the
mapping; returned `bytes` were read without the mapping."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from messagestore.errors import OffsetOutOfRange
from messagestore.log.retention import RetainedSegment
from messagestore.record import PREFIX
from messagestore.walker import segment_name
from mqruntime.log import fields
from mqruntime.repeatedfailures import RepeatedFailures
from mqruntime.segments import SegmentFile

logger = logging.getLogger(__name__)

T = TypeVar("T")

AT_HAND_BYTES = 64 << 20
"""The newest bytes are assumed to be in memory. For older bytes one page is checked, because the kernel reads ahead."""
LOOK_BYTES = 64 << 10
"""Checking this many more bytes costs less than one more check."""
GAP_BYTES = 32 << 10
"""Reading this many unneeded bytes costs less than one more read."""
PIECE_BYTES = 1 << 20
"""Limit of one read of adjacent ranges, because many lagging consumers may read at the same time."""


class RecordPlace(NamedTuple):
    """The place of a record: it begins at `view[at]`, which is `offset` of the log."""

    view: memoryview
    at: int
    offset: int


class Room(NamedTuple):
    """The place of consecutive records. The first record begins at `view[at]`, which is `offset` of the log. Two records are
    separated by `gap` bytes in the view, which stay unchanged, and by `lead` bytes in the log."""

    view: memoryview
    at: int
    offset: int
    gap: int = 0
    lead: int = 0


class LogFiles(ABC):
    """Offsets are physical. Subclasses move `_first` and `_end`, the bounds of readable bytes."""

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
        """Whether the log has a segment. A log that ever held a byte has one, because a cut never removes the oldest."""

    @property
    @abstractmethod
    def flushed_offset(self) -> int:
        """All bytes below this offset are on disk."""

    @abstractmethod
    def _file_at(self, offset: int) -> tuple[SegmentFile, int]:
        """The segment that holds `offset`, and the segment's start. Raises OffsetOutOfRange if the offset is below the log."""

    @abstractmethod
    async def is_boundary(self, offset: int) -> bool:
        """Whether a record, or the end of a segment's records, begins at `offset`. Raises OSError."""

    @abstractmethod
    def first_record(self) -> int | None:
        """Where the first record begins; None if the log does not begin with one."""

    # For the appender

    @abstractmethod
    def places(self, sizes: list[int]) -> list[RecordPlace]:
        """Places for consecutive records of these sizes. The caller writes the records there, and then calls `grow`. Raises
        OSError or LogTakesNothing, with the log unchanged."""

    @abstractmethod
    def room(self, sizes: list[int]) -> Room | None:
        """The places as a Room if all records fit into the log's last segment; else None."""

    @abstractmethod
    def grow(self, end: int) -> None:
        """Note that the records up to `end` are complete in their places."""

    @abstractmethod
    def has_room_for(self, size: int) -> bool:
        """Whether the disk has room to append `size` bytes (less than half a segment)."""

    # For retention

    @abstractmethod
    async def segments_behind_first(self, count_max: int) -> list[RetainedSegment]:
        """At most `count_max` of the oldest segments, without the segment in which the log ends. Their ages are included if
        they can be read."""

    @abstractmethod
    def begin_at(self, offset: int) -> None:
        """Begin the log at `offset`, a segment's start. The segments below leave the log, but stay on disk until
        `delete_former`. They must be flushed, and the last segment is not among them."""

    @abstractmethod
    async def delete_former(self) -> list[SegmentFile]:
        """Delete the files of segments that left the log, oldest first and each durably, so that no gap can arise. The caller
        releases the files. After OSError the next call deletes the rest."""

    def _log_ageless(self, start: int, error: OSError) -> None:
        if self._ageless.failed(start, int(asyncio.get_running_loop().time() * 1000)):
            logger.warning(
                "how old a segment is cannot be read: it counts as old as the next one",
                extra=fields(segment=segment_name(start), why=error),
            )

    # Reading

    def segment_start(self, offset: int) -> int:
        return offset - offset % self.segment_size_bytes

    def is_cold(self, offset: int) -> bool:
        """Whether bytes at `offset` must be read with `read_cold`: they are older than the newest few segments or not in
        memory."""
        if offset >= self._end - AT_HAND_BYTES or offset < self._first:
            return offset < self.cold_end
        file, start = self._file_at(offset)
        return offset < self.cold_end or not file.is_cached(offset - start, offset - start + 1)

    def in_memory(self, ranges: list[tuple[int, int]]) -> bool:
        """Whether each (offset, size) of the log, in order, can be read without waiting for the disk. Ranges close to each
        other, such as those of one queue, are checked together with the bytes between them. If some of these bytes are not in
        memory, the ranges are checked one by one."""
        start, (last, last_size) = ranges[0][0], ranges[-1]
        if start >= max(self._end - AT_HAND_BYTES, self.cold_end):
            return True
        span = last + last_size - start
        if len(ranges) > 1 and span < len(ranges) * LOOK_BYTES and self._is_cached(start, span):
            return True
        return all(self._is_cached(offset, size) for offset, size in ranges)

    def _is_cached(self, offset: int, size: int) -> bool:
        """Whether the range is in memory; False if it leaves its segment."""
        file, start = self._file_at(offset)
        end = offset + size - start
        return end <= self.segment_size_bytes and file.is_cached(offset - start, end)

    @property
    def cold_end(self) -> int:
        """Where the newest few segments begin."""
        return self.segment_start(self._end) - (self._hot_segments - 1) * self.segment_size_bytes

    def segment_view(self, offset: int) -> tuple[memoryview, int]:
        """The whole mapped segment that holds `offset`, and the segment's start. Raises OffsetOutOfRange below the log."""
        file, start = self._file_at(offset)
        return file.view(), start

    def read(self, offset: int, size_max: int) -> memoryview:
        """At most `size_max` log bytes from `offset` on, up to the end of the segment or of the log. Empty at the log's end."""
        end = self._readable_end(offset, size_max)
        if end == offset:
            return memoryview(b"")
        view, start = self.segment_view(offset)
        return view[offset - start : end - start].toreadonly()

    def at_hand(self, offset: int, size: int) -> memoryview | None:
        """The result of `read` if that does not wait for the disk; else None."""
        end = self._end
        tail = end - end % self.segment_size_bytes
        if offset < tail or offset + size > end or offset < end - AT_HAND_BYTES:
            return None if self.is_cold(offset) else self.read(offset, size)
        view = self._file_at(tail)[0].view()
        return view[offset - tail : offset - tail + size].toreadonly()

    def views(self, ranges: list[tuple[int, int]]) -> list[memoryview]:
        """The results of `read` for each (offset, size), in order."""
        first, (last, last_size) = ranges[0][0], ranges[-1]
        if last + last_size > self._end or self.segment_start(first) != self.segment_start(last):
            return [self.read(offset, size) for offset, size in ranges]
        view, start = self.segment_view(first)
        view = view.toreadonly()
        return [view[offset - start : offset - start + size] for offset, size in ranges]

    async def read_cold(self, offset: int, size_max: int) -> bytes:
        """The result of `read`, but read without the mapping. Raises OSError if the disk fails."""
        return await self.read_file(offset, self._readable_end(offset, size_max))

    async def read_cold_each(self, ranges: list[tuple[int, int]]) -> list[bytes]:
        """The results of `read_cold` for each (offset, size), in order. Ranges close to each other, such as those of one
        queue, become one read."""
        found = []
        for near in self._close_together(ranges):
            start, (last, last_size) = near[0][0], near[-1]
            content = await self.read_cold(start, last + last_size - start)
            found += [content[offset - start : offset - start + size] for offset, size in near]
        return found

    def _close_together(self, ranges: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
        """Split `ranges` into groups with small gaps. A group lies in one segment and has at most PIECE_BYTES, unless a single
        range is larger."""
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
        """Bytes [offset, end) of one segment file, whether or not they belong to the log yet. Raises OffsetOutOfRange if the
        offset is below the log, or OSError."""
        if end == offset:
            return b""
        file, start = self._file_at(offset)
        return await file.read_cold(offset - start, end - start)

    async def examine(self, offset: int, end: int, use: Callable[[bytes], T]) -> T:
        """Apply `use` in a thread to the bytes [offset, end) of one segment file. Raises OffsetOutOfRange if the offset is
        below the log, or OSError."""
        file, start = self._file_at(offset)
        return await file.examine(offset - start, end - start, use)

    def _readable_end(self, offset: int, size_max: int) -> int:
        if not self._first <= offset <= self._end:
            raise OffsetOutOfRange(offset, self._first, self._end)
        return min(offset + size_max, self._end, self.segment_start(offset) + self.segment_size_bytes)
