"""Recovery at a start: find the log's end and its confirmed part, and make queues and index agree with them.

Invariant: the log is cut only above the last whole record that ends at or below the confirm offset. An unreadable record below
the confirm offset stops the start (StoreCorrupted), and so does a log without any file if messages were confirmed (LogMissing).
Above the confirm offset, an unreadable record is the torn end of unacknowledged data. The log between the confirm offset and
its end is kept, without queue entries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from messagestore import record
from messagestore.checkpoint import Checkpoint
from messagestore.dispatch.dispatcher import Dispatcher
from messagestore.errors import LogMissing, QueueOffsetGap, StoreCorrupted
from messagestore.index.table import IndexTable
from messagestore.log.commitlog import FOLDER, CommitLog
from messagestore.messages import RecoveryReport
from messagestore.queues.table import QueueTable
from messagestore.walker import SegmentWalk, Stop

READ_STEP_BYTES = 4 << 20
SINGLE_RECORDS = 512


class RecordUnlisted(Exception):
    """A queue does not list a record that it lists according to the checkpoint."""


class Recovery:
    """One recovery of a starting store. For `begins` see CommitLog.load, for `check_queues(listed end, loaded limit)` see
    QueueCheck.run, and for `open_index(dispatched)` see IndexStart.found."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        index: IndexTable | None,
        *,
        verify_body: bool,
        verify_record: bool,
        open_index: Callable[[int], Awaitable[int]],
        check_queues: Callable[[int, int], Awaitable[int]],
        begins: int = 0,
    ) -> None:
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._index = index
        self._verify_body = verify_body
        self._verify_record = verify_body and verify_record
        self._open_index = open_index
        self._check_queues = check_queues
        self._begins = begins
        self._confirm = 0
        self._records = 0
        self._last = self._last_end = 0  # the last record
        self._clean = False
        self._looks_up = False  # whether to verify that queues list their records

    async def run(self, *, clean: bool) -> RecoveryReport:
        """Open log and queues and make them consistent. `clean` means that the last run stopped cleanly, so everything that it
        wrote is on disk. Otherwise only what the checkpoint guarantees is on disk."""
        log, checkpoint = self._log, self._checkpoint
        self._clean = clean
        never_saved = not clean and checkpoint.physic_msg_timestamp == checkpoint.confirm_phy_offset == 0
        await log.load(checkpoint.confirm_phy_offset, never_saved=never_saved, begins=self._begins)
        self._confirm = max(checkpoint.confirm_phy_offset, log.min_offset)
        if self._confirm and not log.has_segments:
            raise LogMissing(FOLDER, self._confirm)
        limit = self._confirm
        if clean:
            await self._queues.load(log.min_offset, limit, trusted=True)
            dispatched = max(self._queues.phy_end(), log.min_offset)
        else:
            dispatched = vouched_start = await self._vouched_start()
            limit = limit if checkpoint.ours else vouched_start
            await self._queues.load(log.min_offset, limit, trusted=False)
            if checkpoint.ours:
                self._looks_up, dispatched = True, max(self._queues.phy_end(), vouched_start)
            if self._queues.phy_end() <= log.min_offset:  # the folder was emptied: rebuild all queues
                dispatched = log.min_offset
        self._dispatcher.position = dispatched
        self._dispatcher.log_min = log.min_offset
        await self._check_queues(dispatched, limit)
        walked_from = log.segment_start(await self._open_index(dispatched))
        self._dispatcher.refuses_gaps = True
        try:
            end = await self._walk(walked_from)
        except RecordUnlisted:
            await self._forget_entries(vouched_start)
            end = await self._walk(log.segment_start(min(walked_from, self._dispatcher.position)))
        self._dispatcher.refuses_gaps = False
        if await self._is_half_there(end):
            end = self._last
        cut_bytes, removed_segments = await log.found_end(end)
        confirm = min(self._confirm, end)
        return RecoveryReport(
            clean=clean, min_offset=log.min_offset, max_offset=end, confirm_offset=confirm,
            dispatched_offset=self._dispatcher.position, walked_from=walked_from, walked_records=self._records,
            cut_bytes=cut_bytes, removed_segments=removed_segments,
        )  # fmt: skip

    async def _is_half_there(self, end: int) -> bool:
        """Whether the last bytes of the log's last record never arrived, because a slave stopped cleanly during the transfer.
        The missing bytes are zeros, which never end properties. The checksum does not show it, because it covers only the
        body."""
        if end != self._last_end or end <= self._confirm:
            return False
        content = await self._log.read_file(self._last, end)
        facts = record.queue_facts(content, 0, len(content), self._last)
        assert not isinstance(facts, int), f"the record at {self._last} was whole a moment ago"
        return facts.properties.endswith(b"\0")

    async def _vouched_start(self) -> int:
        """The start of a segment before which every queue entry is on disk. It is the segment of the confirm offset, or an
        earlier segment whose first record is not younger than the checkpoint's timestamps. Upstream's confirm offset says
        nothing about queues, so the timestamps are used for its stores. The confirm offset of this implementation guarantees
        all entries below it."""
        log = self._log
        start = log.segment_start(min(self._confirm, log.loaded_end))
        while start > log.min_offset:
            if start < log.loaded_end:
                head = await log.read_file(start, min(start + record.FIXED_PARTS[3].size, log.loaded_end))
                timestamp = record.store_timestamp(head, 0)
                if 0 < timestamp <= self._checkpoint.min_timestamp:
                    break
            start -= log.segment_size_bytes
        return start

    async def _forget_entries(self, offset: int) -> None:
        """Drop all entries from `offset` on, so that they are rebuilt: queues are missing records that they have according to
        the checkpoint, because part of a folder was lost. A later put raises QueueOffsetGap if more is missing."""
        self._looks_up, self._records = False, 0
        await self._queues.truncate(offset)
        if self._index is not None:
            await self._index.truncate(offset)
        lost = self._queues.phy_end() <= self._log.min_offset
        self._dispatcher.position = self._log.min_offset if lost else offset

    async def _walk(self, position: int) -> int:
        """Walk the records from `position`, dispatch the confirmed ones and return where the log ends."""
        log = self._log
        buffer, start, wanted = b"", position, READ_STEP_BYTES
        single = 0  # this many records are handled singly before the next bulk attempt
        while position < log.loaded_end:
            segment_end = log.segment_start(position) + log.segment_size_bytes
            at = position - start
            if single:
                single -= 1
            elif (end := self._many(memoryview(buffer)[at:] if at else buffer, position)) > position:
                position = end
                continue
            else:
                single = SINGLE_RECORDS
            size = record.check(
                buffer, at, segment_end - position, position,
                verify_body=self._verify_body, verify_record=self._verify_record,
            )  # fmt: skip
            if size > 0 and self._found(buffer, at, segment_end - position, position):
                position += size
            elif size == record.END_OF_SEGMENT:
                position = segment_end
                buffer, start = b"", position
            elif size == record.INCOMPLETE:
                if at == 0 and buffer:  # the record is larger than one read
                    wanted = max(READ_STEP_BYTES, record.PREFIX.unpack_from(buffer)[0])
                buffer, start = await log.read_file(position, min(position + wanted, segment_end)), position
                wanted, single = READ_STEP_BYTES, 0
            else:
                self._check_torn(buffer, at, position)
                return position
        if position < self._confirm:
            raise StoreCorrupted(position, self._confirm, "no segment holds this offset")
        return position

    def _many(self, content: bytes | memoryview, position: int) -> int:
        """Take as many records as possible at the beginning of `content` in bulk, and return where the last of them ends."""
        dispatcher = self._dispatcher
        if dispatcher.bulk is None or (records := dispatcher.bulk.records_of(content, position)) is None:
            return position
        if self._verify_body:
            records = records.first(records.intact_bodies())
        if self._verify_record:
            records = records.first(records.intact_records())
        confirmed = records.ending_by(self._confirm)
        if not self._clean:
            records = records.first(confirmed + records.rows(confirmed, len(records)).without_zeros())
        dispatched = records.starting_below(dispatcher.position)
        if dispatched and self._looks_up and not dispatcher.bulk.are_listed(records.first(dispatched)):
            raise RecordUnlisted
        taken = dispatcher.index_many(records.first(dispatched))
        if taken == dispatched < confirmed:
            taken += dispatcher.put_many(records.rows(dispatched, confirmed))
        if taken == max(dispatched, confirmed):
            taken = len(records)
        if not taken:
            return position
        taken_in = records.first(taken)
        self._records += taken
        self._last, self._last_end = int(taken_in.physical_offsets[-1]), taken_in.end_offset
        return self._last_end

    def _found(self, buffer: bytes, at: int, left: int, position: int) -> bool:
        """Take a record that `check` found whole. Returns False if it is torn nevertheless.

        Most checksums cover only bodies. If a power cut lost bytes of the topic or the properties, they are zeros, which no
        record's text contains."""
        facts = record.queue_facts(buffer, at, left, position)
        assert not isinstance(facts, int), f"the record at {position} was whole a moment ago"
        confirmed = position + facts.size <= self._confirm
        if not confirmed and not self._clean and (0 in facts.topic or 0 in facts.properties):
            return False
        self._records += 1
        self._last, self._last_end = position, position + facts.size
        if position < self._dispatcher.position:
            listed = facts.queue_offset < self._queues.end_of(facts.topic, facts.queue_id)
            if self._looks_up and not listed and record.counts_in_queue(facts.sys_flag):
                raise RecordUnlisted
            self._dispatcher.store_timestamp = facts.store_timestamp
            self._dispatcher.index(position, facts)
        elif confirmed:
            self._put(position, facts)
        return True

    def _put(self, position: int, facts: record.QueueFacts) -> None:
        """Dispatch the record. Raises QueueOffsetGap if a queue is missing records that the log holds. Gaps in the log itself
        are bridged."""
        try:
            self._dispatcher.put(position, facts)
        except QueueOffsetGap as gap:
            if self._log_holds(facts.topic, facts.queue_id, gap.expected, facts.queue_offset, position):
                raise
            self._dispatcher.refuses_gaps = False
            self._dispatcher.put(position, facts)
            self._dispatcher.refuses_gaps = True

    def _log_holds(self, topic: bytes, queue_id: int, first: int, end: int, limit: int) -> bool:
        """Whether a record of the queue below `limit` has one of the queue offsets [first, end), or a record below `limit`
        cannot be read."""
        log = self._log
        position = max(self._queues.phy_end_of(topic, queue_id), log.min_offset)
        while position < limit:
            view, start = log.segment_view(position)
            walk = SegmentWalk(view, start, position, limit, verify_body=False)
            for offset, _ in walk:
                head = record.queue_head(view, offset - start, len(view) - (offset - start), offset)
                assert not isinstance(head, int), f"the record at {offset} was whole a moment ago"
                _, found, found_id, queue_offset, sys_flag, _ = head
                same = found == topic and found_id == queue_id and record.counts_in_queue(sys_flag)
                if same and first <= queue_offset < end:
                    return True
            if walk.stop is Stop.INVALID:
                return True
            position = start + log.segment_size_bytes if walk.stop is Stop.END_OF_SEGMENT else limit
        return False

    def _check_torn(self, buffer: bytes, at: int, position: int) -> None:
        """Raise StoreCorrupted unless a torn end explains that no record is at `position`. The confirm offset may lie inside a
        record, so this is damage only if the whole record was confirmed."""
        if self._confirm - position < record.PREFIX.size:
            return
        if record.declared_end(buffer, at, position) <= self._confirm:
            raise StoreCorrupted(position, self._confirm, "no whole valid record is here")
