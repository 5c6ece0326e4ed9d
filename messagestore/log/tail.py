"""The part of a log that the consume queues do not list yet.

Invariant: the queues list everything below the dispatched position, so whatever is asked here is answered by walking
records from a known boundary at or above it, or from the queues below it."""

from __future__ import annotations

import asyncio

from messagestore.log.commitlog import CommitLog
from messagestore.queues.dispatcher import Dispatcher
from messagestore.queues.table import QueueTable
from messagestore.record import counts_in_queue, queue_facts
from messagestore.walker import SegmentWalk, Stop

YIELD_RECORDS = 512


class LogTail:
    """Offsets are physical unless called queue offsets."""

    def __init__(self, log: CommitLog, queues: QueueTable, dispatcher: Dispatcher) -> None:
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher

    def boundary_at_or_below(self, offset: int) -> int:
        """The greatest start or end of a record that is not above `offset`, found from the nearest known one."""
        log = self._log
        offset = min(offset, log.max_offset)
        known = max(log.segment_start(offset), log.min_offset)
        dispatched = self._dispatcher.position
        known = max(known, dispatched if dispatched <= offset else self._queues.boundary_at_or_below(offset))
        while known < offset:
            view, start = log.segment_view(known)
            walk = SegmentWalk(view, start, known, offset, verify_body=False)
            for _ in walk:
                pass
            segment_end = start + log.segment_size_bytes
            if walk.stop is not Stop.END_OF_SEGMENT or segment_end > offset:
                return walk.position
            known = segment_end
        return known

    async def next_offsets(self) -> tuple[dict[tuple[bytes, int], int], int]:
        """The next queue offset of every (topic, queue id), and the newest store time in ms. The log ends at a record
        boundary. Others run between two steps of the walk."""
        log = self._log
        next_offsets = self._queues.next_offsets()
        timestamp, position = self._dispatcher.store_timestamp, self._dispatcher.position
        while position < log.max_offset:
            view, start = log.segment_view(position)
            walk = SegmentWalk(view, start, position, log.max_offset, verify_body=False)
            for number, (offset, size) in enumerate(walk, 1):
                facts = queue_facts(view, offset - start, size, offset)
                assert not isinstance(facts, int), f"the record at {offset} was whole a moment ago"
                timestamp = max(timestamp, facts.store_timestamp)
                if counts_in_queue(facts.sys_flag):
                    next_offsets[facts.topic, facts.queue_id] = facts.queue_offset + 1
                if number % YIELD_RECORDS == 0:
                    await asyncio.sleep(0)
            position = start + log.segment_size_bytes if walk.stop is Stop.END_OF_SEGMENT else walk.position
            assert walk.stop is not Stop.INVALID, f"the log was walked to {log.max_offset} a moment ago"
        return next_offsets, timestamp
