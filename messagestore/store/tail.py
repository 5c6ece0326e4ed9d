"""The part of a log that the consume queues do not list yet.

Invariant: the queues list everything below the dispatched position, and the walk has read every record between that position
and the walked position. So no record is walked twice, although a role change needs this part of the log three times. Walks run
in slices and yield to other tasks between two slices. Dispatch reads the same records at a tenth of the speed, so it waits
while a walk runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

from messagestore.dispatch.dispatcher import Dispatcher
from messagestore.errors import StoreCorrupted
from messagestore.log.commitlog import CommitLog
from messagestore.queues.consumequeue import place_of
from messagestore.queues.table import QueueTable
from messagestore.record import (
    END_OF_SEGMENT,
    INCOMPLETE,
    PREFIX,
    RECORD_SIZE_MIN,
    Buffer,
    check,
    counts_in_queue,
    declared_end,
    queue_head,
)

SLICE_RECORDS = 512
COLD_STEP_BYTES = 1 << 20


class Walked:
    """A walk over records from a known boundary: its position, and the queue offsets that it found. It does no I/O.

    `end_of(topic, queue id)` is the next queue offset of a queue that the walk has not met yet."""

    def __init__(self, position: int, end_of: Callable[[bytes, int], int]) -> None:
        self.position = position
        self.next_offsets: dict[tuple[bytes, int], int] = {}
        self.timestamp = 0
        self._end_of = end_of

    def slice(self, buffer: Buffer, start: int, segment_end: int, limit: int) -> int | None:
        """Walk at most SLICE_RECORDS records, but no record that ends above `limit`. Returns None if the walk can continue.
        Else it returns `queue_head`'s code at `position`, or the size of a record that ends above `limit`.

        `buffer` holds log bytes from offset `start` on, of one segment that ends at `segment_end`."""
        position, next_offsets = self.position, self.next_offsets
        try:
            for _ in range(SLICE_RECORDS):
                head = queue_head(buffer, position - start, segment_end - position, position)
                if isinstance(head, int):
                    if head == END_OF_SEGMENT and segment_end <= limit:
                        position = segment_end
                        return None
                    return head
                size, topic, queue_id, queue_offset, sys_flag, timestamp = head
                if position + size > limit:
                    return size
                if counts_in_queue(sys_flag):
                    queue = topic, queue_id
                    end = next_offsets.get(queue)
                    if end is None:
                        end = self._end_of(topic, queue_id)
                    place = place_of(queue_offset, end)
                    next_offsets[queue] = end if place is None else place + 1
                if timestamp > self.timestamp:
                    self.timestamp = timestamp
                position += size
            return None
        finally:
            self.position = position


class LogTail:
    """Offsets are physical unless they are called queue offsets. Dispatch pauses within `hold_dispatch()`."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        dispatcher: Dispatcher,
        hold_dispatch: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._hold_dispatch = hold_dispatch
        self._tail = Walked(0, queues.end_of)

    async def boundary_at_or_below(self, offset: int, confirm_offset: int) -> int:
        """The greatest record boundary not above `offset`, found by a walk from the nearest known boundary. Raises
        StoreCorrupted if the walk meets damage below both `confirm_offset` and `offset`, or OSError."""
        boundary = await self._boundary_at_or_below(min(offset, self._log.max_offset))
        await self._check_end(boundary, min(offset, confirm_offset))
        return boundary

    async def _check_end(self, boundary: int, limit: int) -> None:
        """Raise StoreCorrupted if no record begins at `boundary`. A record that ends above `limit` is no damage."""
        log = self._log
        segment_end = log.segment_start(boundary) + log.segment_size_bytes
        if boundary + PREFIX.size > min(limit, segment_end):
            return
        content = await log.read_file(boundary, min(boundary + RECORD_SIZE_MIN, segment_end))
        is_blank = check(content, 0, segment_end - boundary, boundary) == END_OF_SEGMENT
        if not is_blank and declared_end(content, 0, boundary) <= limit:
            raise StoreCorrupted(boundary, limit, "no whole valid record is here")

    async def _boundary_at_or_below(self, offset: int) -> int:
        log = self._log
        if offset < self._tail.position:
            self._begin()
        if offset >= self._dispatcher.position:
            with self._hold_dispatch():
                await self._walk(offset)
            if self._tail.position <= offset:
                return self._tail.position
        known = max(log.segment_start(offset), log.min_offset, self._queues.boundary_at_or_below(offset))
        below = Walked(known, self._queues.end_of)
        while True:
            if not await self._step(below, offset):
                return below.position
            await asyncio.sleep(0)

    async def next_offsets(self) -> tuple[dict[tuple[bytes, int], int], int]:
        """The next queue offset of every (topic, queue id), and the newest store time in ms. The log must end at a record's
        end. Raises OSError."""
        with self._hold_dispatch():
            await self._walk(self._log.max_offset)
        tail = self._tail
        assert tail.position == self._log.max_offset, (
            f"no record ends at the log's end, above {tail.position}"
        )
        timestamp = max(tail.timestamp, self._dispatcher.store_timestamp)
        return {**self._queues.next_offsets(), **tail.next_offsets}, timestamp

    def cut(self, offset: int) -> None:
        """Note that log, queues and dispatch were cut, and end at or below `offset`. If the queues list as much as was walked,
        their ends are read again, because the walk may have used ends that the cut removed."""
        if self._tail.position > offset or self._tail.position <= self._dispatcher.position:
            self._begin()

    def _begin(self) -> None:
        self._tail = Walked(self._dispatcher.position, self._queues.end_of)

    async def _walk(self, limit: int) -> None:
        while True:
            if self._tail.position < self._dispatcher.position:
                self._begin()
            if not await self._step(self._tail, limit):
                return
            await asyncio.sleep(0)

    async def _step(self, walked: Walked, limit: int) -> bool:
        """Walk one slice. Returns False if nothing is left below `limit`."""
        log, position = self._log, walked.position
        if position >= limit:
            return False
        segment_end = log.segment_start(position) + log.segment_size_bytes
        if not log.is_cold(position):
            view, start = log.segment_view(position)
            return walked.slice(view, start, segment_end, limit) is None
        content = await log.read_file(position, min(position + COLD_STEP_BYTES, segment_end))
        stop = walked.slice(content, position, segment_end, limit)
        if stop == INCOMPLETE and walked.position == position:  # the record is longer than a step
            size = PREFIX.unpack_from(content)[0]
            content = await log.read_file(position, position + size)
            stop = walked.slice(content, position, segment_end, limit)
        return stop is None or (stop == INCOMPLETE and walked.position != position)
