"""The store of a Raft-mode broker. Its commit log is the broker's plain log, if there is one, followed by the DLedger log of
the broker's Raft group. Everything in the plain log is committed and never changes.

Invariant: only committed data on this disk is dispatched and read. A leader appends only after its whole log is dispatched, so
queue offsets have no gap. The member's files are open as long as the store is open. Upstream: DLedgerCommitLog."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from dledger.raft.errors import (
    LogDamaged,
    LogOfAnother,
    MembersChanged,
    MembersUnknown,
    SnapshotDamaged,
    SnapshotUnknown,
)
from dledger.storage.entry import ENTRY_HEADER_BYTES, check_of, index_header, stored_check
from dledger.storage.keyvalues import BadKeyValues
from messagestore.checkpoint import Checkpoint
from messagestore.errors import (
    LogReplaced,
    LogTakesNothing,
    OffsetOutOfRange,
    RecordDamaged,
    StoreCorrupted,
    StoreError,
)
from messagestore.log.appender import Appender
from messagestore.log.commits import CommitsFound, commits_in
from messagestore.messages import RecoveryReport
from messagestore.scrub.walk import WalkedSlice, walk_slice
from messagestore.store.brokerstore import BrokerStore
from messagestore.store.settings import StoreSettings
from mqruntime.runtime import Runtime
from raftstore.chain import Chain, walk_entries
from raftstore.entrywalk import EntryDispatcher, commits_in_entries
from raftstore.filling import Filling
from raftstore.formerlog import FormerLog
from raftstore.ledgerlog import LedgerLog
from raftstore.member import Member
from raftstore.ownindex import OwnIndex
from raftstore.queueends import EmptiedQueueEnd, QueueEndsUnreadable, decode_queue_ends, encode_queue_ends
from raftstore.sounddispatch import VerifiedDispatch

logger = logging.getLogger("raftstore.store")

UNUSABLE = (
    LogDamaged, LogOfAnother, MembersChanged, MembersUnknown, SnapshotDamaged, SnapshotUnknown, BadKeyValues,
    QueueEndsUnreadable,
)  # fmt: skip


class LedgerUnusable(StoreError):
    """The DLedger log cannot be opened; the error's text names the reason."""


class LedgerStore(BrokerStore):
    """The store over the log of `member`. The store opens the log when the store starts, and closes it when the store stops.
    `restart()` restarts the process after another member's log replaced this log, because the present queues and index list a
    log that is gone."""

    _log: LedgerLog
    _dispatcher: EntryDispatcher

    def __init__(
        self,
        runtime: Runtime,
        settings: StoreSettings,
        member: Member,
        *,
        restart: Callable[[], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        log = LedgerLog(member.node, hot_segments=settings.hot_segments, queue_ends=self._queue_ends)
        super().__init__(
            runtime,
            settings,
            log,
            dispatcher=EntryDispatcher,
            walk=self._walk,
            commits=self._commits,
            on_fatal=on_fatal,
        )
        self._former = FormerLog(runtime, settings, member)
        Filling(self._former, member, runtime.clock, runs=self.runs, restart=restart)
        self._member = member
        self._restart = restart
        self._progress = asyncio.Event()
        self._chain = Chain()
        self._own_index = OwnIndex(member.node)
        self._verified_dispatch = VerifiedDispatch(
            self.integrity, others=member.others, doubted=self._entry_doubted
        )
        self._looks_again = False
        member.set_listeners(
            readable=self._readable_to,
            replaced=self._replaced_at,
            restarted=self._restarted,
            unreadable=self._unreadable,
        )
        self._dispatcher.on_moved = self._progress.set

    def _walk(
        self, buffer: bytes, start: int, segment_end: int, limit: int, verify_record: bool = False
    ) -> WalkedSlice:
        if start < self._log.divided_at:
            return walk_slice(buffer, start, segment_end, limit, verify_record)
        log = self._member.node.store.log
        assert log is not None
        begin = log.begin
        before = (begin.check,) if start == begin.position else self._chain.before(start)
        walked, checks = walk_entries(buffer, start, segment_end, limit, verify_record, before=before)
        self._chain.ends(walked.end + walked.size, checks)
        return walked

    def _commits(self, buffer: bytes, start: int, segment_end: int, limit: int) -> CommitsFound:
        commits = commits_in if start < self._log.divided_at else commits_in_entries
        return commits(buffer, start, segment_end, limit)

    def begin_of(self, record_offset: int) -> int:
        return record_offset - (0 if record_offset < self._log.divided_at else ENTRY_HEADER_BYTES)

    # Lifecycle

    async def start(self, *, saves: bool = True) -> RecoveryReport:
        """Start the store. A plain log that no DLedger log continues yet is closed first."""
        await self._former.close_if_new()
        return await super().start(saves=saves)

    async def _recovered(self, checkpoint: Checkpoint, *, clean: bool) -> RecoveryReport:
        """Recover the log. The DLedger member's own recovery finds the log's end and its committed part. Missing queue and
        index entries are dispatched while the store runs."""
        node = self._member.node
        try:
            divide = await self._former.open()
            if divide is not None:
                node.set_log_origin(divide.at, divide.description)
            await node.open()
            ends = [*(() if divide is None else divide.queue_ends), *decode_queue_ends(node.note)]
        except UNUSABLE as error:
            raise LedgerUnusable(str(error)) from error
        log, queues, vouched_for = self._log, self._queues, checkpoint.confirm_phy_offset
        await self._former.begins_at(node.log_begin())
        log.opened(vouched_for, self._former.log)
        self._dispatcher.divided_at = log.divided_at
        if log.flushed_offset < vouched_for:
            raise StoreCorrupted(
                log.flushed_offset, vouched_for, "the log ends there, and more was dispatched"
            )
        await queues.load(log.min_offset, vouched_for, trusted=clean)
        if vouched_for <= log.min_offset:  # the queues are those of a log that another member's log replaced
            await queues.reset()
        for topic, queue_id, end in ends:
            queues.ends_at_least(topic, queue_id, end)
        dispatched = max(queues.phy_end() if clean else vouched_for, log.min_offset)
        if queues.phy_end() <= log.min_offset:
            dispatched = log.min_offset
        self._dispatcher.log_min = log.min_offset
        dispatched = await self._saved.check_queues(dispatched, vouched_for, mends=False)
        self._dispatcher.position = await self._index_start(checkpoint).found(dispatched, trusted=clean)
        # uncommitted data may be replaced, so checks of the log's bytes leave it out
        committed_end = log.flushed_offset
        return RecoveryReport(
            clean=clean, min_offset=log.min_offset, max_offset=committed_end, confirm_offset=committed_end,
            dispatched_offset=self._dispatcher.position, walked_from=committed_end, walked_records=0, cut_bytes=0,
            removed_segments=0,
        )  # fmt: skip

    def _queue_ends(self) -> bytes:
        """The offset at which each queue begins, for a log that no longer holds earlier messages."""
        return encode_queue_ends(EmptiedQueueEnd(*begin) for begin in self._queues.begins())

    def _appends_end(self) -> None:
        self._progress.set()

    async def _flush_all(self) -> None:
        """Nothing to do: data is on disk before it is reported as committed."""

    def _has_unlisted(self) -> bool:
        """Always False: a Java broker in Raft mode lists nothing while it starts, and continues after the committed part."""
        return False

    async def _close_log(self) -> None:
        await self._member.close()
        self._former.close()

    # Called by the member

    def _readable_to(self, end: int) -> None:
        self._log.readable_to(end)
        self.set_confirm_offset(end)
        self._progress.set()
        for callback in self._flush_callbacks:
            callback()

    def _replaced_at(self, position: int) -> None:
        self._log.replaced_at(position)

    def _restarted(self) -> None:
        self._restart()

    def _fail(self, error: BaseException) -> None:
        """Handle a fatal error. An error of a reader, such as dispatch, is ignored if another member's log replaces this log: a
        restart is coming, and no disk has failed."""
        if not isinstance(error, LogReplaced):
            super()._fail(error)

    def leads_no_more(self) -> None:
        """Wake the callers that wait for the master role, so that they check it again."""
        self._progress.set()

    def runs(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task until the store stops; an error of the task ends the broker."""
        self._tasks.start(coroutine, name=name)

    # Corrupt entries

    def _unreadable(self, index: int) -> None:
        """Handle an unreadable entry that a follower is missing. Either this entry is corrupt, or the checksum of the entry
        before. The scrub checks both entries and repairs the corrupt one."""
        ends = self._member.ends_up_to(index)
        if len(ends) > 1 and ends[-1] <= self._confirm and not self._looks_again:
            self._looks_again = True
            self.runs(self._look_again(ends[0], ends[-1]), "check unreadable entry")

    def _is_as_written(self, content: memoryview, physical_offset: int) -> bool:
        """Whether an entry agrees with its checksum, which covers more bytes than the CRCs of the record."""
        if not super()._is_as_written(content, physical_offset):
            return False
        position = self.begin_of(physical_offset)
        if position == physical_offset:
            return True
        log = self._member.node.store.log
        assert log is not None
        try:
            head = bytes(self._log.read(position, ENTRY_HEADER_BYTES))
            unit, stored = index_header(head), stored_check(head)
            if unit is None or not log.begin.index < unit.index <= log.end_index:
                return False
            return stored in (0, check_of(head + bytes(content), log.check_of(unit.index - 1)))
        except (LogDamaged, OffsetOutOfRange):
            return False

    async def _may_dispatch(self, start: int, end: int) -> bool:
        return await self._verified_dispatch.may_read(start, end)

    def _dispatch_looks_again(self, position: int) -> bool:
        return position >= self._log.divided_at and self._verified_dispatch.looks_again(position)

    async def _suspect_range(self, record_offset: int, size: int) -> tuple[int, int] | None:
        """The range to check: the entry, and the entry before, because the checksum of the entry before may be the corrupt
        part."""
        if self.is_plain(record_offset):
            return await super()._suspect_range(record_offset, size)
        return self._entry_doubted(self.begin_of(record_offset))

    def _entry_doubted(self, position: int) -> tuple[int, int] | None:
        try:
            unit = self._own_index.at(position)
        except LogDamaged:
            return None
        if unit is None or not self._log.min_offset <= position < unit.end <= self._confirm:
            return None
        begin = max(self._log.min_offset, self._log.divided_at, self._member.ends_up_to(unit.index)[0])
        return min(begin, position), unit.end

    async def _look_again(self, start: int, end: int) -> None:
        self.integrity.mark_suspect(start, end)
        try:
            await self.integrity.check(start, end - start)
        except LogReplaced:
            raise
        except (RecordDamaged, OffsetOutOfRange, OSError) as error:
            logger.debug("an entry that a follower is missing is damaged: %s", error)
        finally:
            self._looks_again = False

    def encoded_divide(self) -> bytes | None:
        """The description of the plain log for an empty member; None without a plain log."""
        return self._former.encoded_divide(tuple(EmptiedQueueEnd(*begin) for begin in self._queues.begins()))

    async def piece(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset` on, in one file, of committed and intact data on this disk.

        Raises: OffsetOutOfRange, RecordDamaged, OSError."""
        size = min(size, self._log.flushed_offset - offset)
        if size <= 0:
            raise OffsetOutOfRange(offset, self._log.min_offset, self._log.flushed_offset)
        await self.integrity.check(offset, size)
        return await self._log.read_cold(offset, size)

    def is_plain(self, offset: int) -> bool:
        """Whether `offset` lies before the divide."""
        return offset < self._log.divided_at

    def left_at(self, offset: int) -> int:
        """The number of bytes in the file from `offset` on."""
        return self._log.segment_start(offset) + self._log.segment_size_bytes - offset

    async def own_piece(self, offset: int, size: int) -> bytes:
        """Like `piece`, but the bytes need not be intact. Raises OffsetOutOfRange, OSError."""
        return await self._log.read_file(offset, offset + min(size, self.left_at(offset)))

    async def mend(self, offset: int, content: bytes, size: int) -> bool:
        """Write the proven contents at `offset` again; they cover `size` bytes of the log, and are durable on return. False if
        the range is not damaged any more, or not committed here. Raises StoreFailed."""
        if offset + size > self._confirm:
            return False
        try:
            mended = await self._log.rewrite(offset, content, lambda: offset in self.integrity.damages)
        except OffsetOutOfRange:
            return False
        except OSError as error:
            raise self._failed(error) from error
        if mended:
            self.integrity.repaired(offset, size)
        return mended

    # Role

    async def become_master(self) -> None:
        term = self._member.term
        while self._dispatcher.position < self._log.max_offset:
            self._check_leads(term)
            self._progress.clear()
            await self._progress.wait()
        newest_ms = await self._newest_store_time()
        self._check_leads(term)
        self._appender = Appender(
            self._log, self._settings.max_message_size, self._queues.next_offsets(), newest_ms, self._dispatcher.known,
            record_crcs=self._settings.enabled_append_prop_crc,
        )  # fmt: skip

    def _check_leads(self, term: int) -> None:
        if not (self._running and self._member.leads and self._member.term == term):
            raise LogTakesNothing(f"this member does not lead term {term} any more")

    def become_slave(self) -> None:
        self._appender = None
        self._dispatcher.known.clear()

    async def _newest_store_time(self) -> int:
        """Store time of the newest dispatched message, ms. No message that is appended later gets an older store time."""
        newest = max(self._queues.all(), key=lambda queue: queue.phy_end, default=None)
        if newest is None:
            return 0
        last = newest.max_queue_offset - 1
        stored_ms = await self.store_time_at(newest.topic, newest.queue_id, last)
        return max(0, self._dispatcher.store_timestamp, stored_ms)

    def _nothing_appended(self) -> None:
        """Nothing to do: the sender gets an error and tries another broker."""

    async def sync_again(self, offset: int) -> None:
        """Nothing to do: the member syncs its log at each start."""

    async def synced_to(self, end: int) -> None:
        """Nothing to do: committed data is on the disks of a majority, and nothing depends on more data."""

    def sync_lasts_ms(self) -> int:
        return 0
