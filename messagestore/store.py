"""The message store of one broker: commit log, consume queues, index and checkpoint kept in step.

Invariant: dispatched offset <= confirm offset <= max offset, so no reader sees what an in-sync replica may lack; the
confirm offset falls only by a truncation; and after the first failure of the disk nothing more is accepted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from messagestore.appender import Appender
from messagestore.checkpoint import FILE, Checkpoint, decode_checkpoint
from messagestore.commitlog import FOLDER, CommitLog
from messagestore.dispatch import Dispatcher
from messagestore.errors import DISK_FULL, StoreFailed
from messagestore.indextable import FOLDER as INDEX_FOLDER
from messagestore.indextable import IndexTable
from messagestore.lookup import KeyLookup
from messagestore.messages import (
    Appended,
    GetResult,
    MessageToStore,
    PutStatus,
    QueueEntry,
    QueueGrew,
    RecoveryReport,
    TagFilter,
)
from messagestore.queuetable import FOLDER as QUEUES_FOLDER
from messagestore.queuetable import QueueTable
from messagestore.reading import QueueReader
from messagestore.record import counts_in_queue, pack_host, queue_facts
from messagestore.recovery import Recovery
from messagestore.settings import StoreSettings
from messagestore.walker import SegmentWalk, Stop
from mqruntime.runtime import Runtime
from mqruntime.tasks import Tasks

ABORT_FILE = "abort"  # exists while a store runs; found at start, the last run did not stop by itself
DISK_FULL_RETRY_S = 1.0
DISPATCH_STEP_RECORDS = 512
COLD_STEP_BYTES = 1 << 20

log = logging.getLogger(__name__)


class MessageStore:
    """Offsets are physical unless called queue offsets. Satisfies the log protocol of replication.

    Start as a slave: `append` refuses until `become_master`."""

    def __init__(
        self, runtime: Runtime, settings: StoreSettings, *, on_fatal: Callable[[BaseException], None]
    ) -> None:
        self.store_host = pack_host("127.0.0.1", 10911)  # of this broker; written into every record it stores
        self.segment_size_bytes = settings.mapped_file_size_commit_log
        self._clock = runtime.clock
        self._files = runtime.files
        self._settings = settings
        self._on_fatal = on_fatal
        self._tasks = Tasks(self._fail)
        self._log = CommitLog(
            runtime.segments.subdirectory(FOLDER),
            settings.mapped_file_size_commit_log,
            hot_segments=settings.hot_segments,
        )
        self._queues = QueueTable(
            runtime.segments.subdirectory(QUEUES_FOLDER), settings.mapped_file_size_consume_queue
        )
        self._index = None
        if settings.message_index_enable:
            self._index = IndexTable(
                runtime.segments.subdirectory(INDEX_FOLDER), settings.index_slots, settings.index_entries,
                runtime.clock.now_ms,
            )  # fmt: skip
        self._dispatcher = Dispatcher(self._queues, settings.message_delay_level, self._index)
        self._appender = Appender(self._log, settings.max_message_size)
        self._reader = QueueReader(self._log, self._queues)
        self._checkpoint = Checkpoint()
        self._stored_checkpoint = b""
        self._confirm = 0
        self._queues_synced = 0  # entries of records that end at or below this are on disk
        self._running = False
        self._master = False
        self._queues_full = False
        self._failure: BaseException | None = None
        self._append_callbacks: list[Callable[[], None]] = []
        self._arrival_callbacks: list[Callable[[list[QueueGrew]], None]] = []
        self._unflushed = asyncio.Event()
        self._undispatched = asyncio.Event()
        self._unsaved = asyncio.Event()

    # Life

    async def start(self) -> RecoveryReport:
        """Recovers and begins to serve. StoreCorrupted, BadSegments, QueueOffsetGap or OSError when it cannot. Whoever
        runs the process holds the store's lock."""
        try:
            clean = await self._files.read(ABORT_FILE) is None
            await self._files.replace(
                ABORT_FILE, b"running\n"
            )  # again: a killed process may not have synced it
            self._checkpoint = decode_checkpoint(await self._files.read(FILE))
            recovery = Recovery(
                self._log, self._queues, self._dispatcher, self._checkpoint, self._index,
                verify_body=self._settings.check_crc_on_recover,
            )  # fmt: skip
            report = await recovery.run(clean=clean)
            self._confirm = report.confirm_offset
            await self._save()
        except BaseException:
            self._close()
            raise
        self._running = True
        self._tasks.start(self._flush_loop(), name="store-flush")
        self._tasks.start(self._dispatch_loop(), name="store-dispatch")
        self._tasks.start(self._save_loop(), name="store-checkpoint")
        self._undispatched.set()
        return report

    async def stop(self) -> None:
        """Everything is on disk on return. After a failure nothing is written: the next start recovers."""
        if not self._running:
            return
        self._running = self._master = False
        await self._tasks.stop()
        try:
            if self._failure is None:
                await self._log.flush()
                await self._save()
                await self._files.remove(ABORT_FILE)
        finally:
            self._close()

    def _close(self) -> None:
        self._queues.close()
        if self._index is not None:
            self._index.close()
        self._log.close()

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self._on_fatal(error if isinstance(error, StoreFailed) else StoreFailed(error))

    # Role

    async def become_master(self) -> None:
        """Ends the log at a record boundary, finds the next queue offsets and accepts appends. Takes as long as reading
        the part of the log that is not dispatched yet; calling it again does no harm."""
        await self.truncate(self.boundary_at_or_below(self._log.max_offset))
        next_offsets = self._queues.next_offsets()
        timestamp, position = self._dispatcher.store_timestamp, self._dispatcher.position
        while position < self._log.max_offset:
            view, start = self._log.segment_view(position)
            walk = SegmentWalk(view, start, position, self._log.max_offset, verify_body=False)
            for number, (offset, size) in enumerate(walk, 1):
                facts = queue_facts(view, offset - start, size, offset)
                assert not isinstance(facts, int), f"the record at {offset} was whole a moment ago"
                timestamp = max(timestamp, facts.store_timestamp)
                if counts_in_queue(facts.sys_flag):
                    next_offsets[facts.topic, facts.queue_id] = facts.queue_offset + 1
                if number % DISPATCH_STEP_RECORDS == 0:
                    await asyncio.sleep(0)
            position = start + self.segment_size_bytes if walk.stop is Stop.END_OF_SEGMENT else walk.position
            assert walk.stop is not Stop.INVALID, f"the log was walked to {self._log.max_offset} a moment ago"
        self._appender.next_offsets = next_offsets
        self._appender.store_timestamp = timestamp
        self._master = self._running

    def become_slave(self) -> None:
        """Appends are refused from now on; the log grows through write_view and advance."""
        self._master = False

    # The master's writes

    def append(self, messages: Sequence[MessageToStore]) -> list[Appended]:
        """Stores messages in order, each with its own outcome, and wakes replication once."""
        if not self._master or self._queues_full or self._failure is not None:
            refused = Appended(-1, -1, -1, 0, -1, PutStatus.SERVICE_NOT_AVAILABLE)
            return [refused] * len(messages)
        before = self._log.max_offset
        appended = self._appender.append(messages, self.store_host, self._clock.now_ms())
        if self._log.max_offset != before:
            self._grown()
            for callback in self._append_callbacks:
                callback()
        return appended

    def on_append(self, callback: Callable[[], None]) -> None:
        """`callback()` after each append that stored something: once for all its messages."""
        self._append_callbacks.append(callback)

    def _grown(self) -> None:
        self._unflushed.set()
        if self._log.wants_next():
            asyncio.get_running_loop().call_soon(self._prepare_next)

    def _prepare_next(self) -> None:
        if not self._running or self._failure is not None:
            return
        try:
            self._log.prepare_next()
        except OSError as error:
            log.warning("next_segment=failed error=%s", error)  # a roll tries again and answers the sender

    async def flush(self) -> int:
        """What was appended before the call is on disk on return. StoreFailed when the disk failed, now or before.
        Returns flushed_offset."""
        if self._failure is not None:
            raise StoreFailed(self._failure)
        try:
            flushed = await self._log.flush()
        except OSError as error:
            self._fail(error)
            raise StoreFailed(error) from error
        self._unsaved.set()
        return flushed

    def flushed_offset(self) -> int:
        return self._log.flushed_offset

    # The log, as replication sees it

    def min_offset(self) -> int:
        return self._log.min_offset

    def max_offset(self) -> int:
        return self._log.max_offset

    def read(self, offset: int, size_max: int) -> memoryview:
        return self._log.read(offset, size_max)

    async def read_cold(self, offset: int, size_max: int) -> bytes:
        return await self._log.read_cold(offset, size_max)

    def is_cold(self, offset: int) -> bool:
        return self._log.is_cold(offset)

    def write_view(self, offset: int, size_max: int) -> memoryview:
        """Where received log bytes go; see CommitLog.write_view. StoreFailed after a failure, OSError (ENOSPC)."""
        assert not self._master, "a master's log is not written by a slave's link"
        if self._failure is not None:
            raise StoreFailed(self._failure)
        view = self._log.write_view(offset, size_max)
        if self._dispatcher.position < self._log.min_offset:  # an empty log has just got its beginning
            self._dispatcher.position = self._dispatcher.log_min = self._confirm = self._log.min_offset
        return view

    def advance(self, end: int) -> None:
        self._log.advance(end)
        self._grown()

    async def truncate(self, offset: int) -> None:
        """Log, queues and confirm offset end at `offset`, durably on return. Called with max_offset it erases what an
        ended connection left above the log's end; to be done before a new connection fills it."""
        self._confirm = min(self._confirm, offset)
        self._queues_synced = min(self._queues_synced, offset)
        try:
            if (
                self._checkpoint.confirm_phy_offset > offset
            ):  # first, so that a crash finds nothing lost below it
                await self._save_checkpoint()
            if self._dispatcher.position > offset:
                await self._queues.truncate(offset)
                if self._index is not None:
                    await self._index.truncate(offset)
                self._dispatcher.position = offset
            await self._log.truncate(offset)
        except OSError as error:
            self._fail(error)
            raise StoreFailed(error) from error

    def boundary_at_or_below(self, offset: int) -> int:
        """The greatest start or end of a record that is not above `offset`, found from the nearest known one."""
        offset = min(offset, self._log.max_offset)
        known = max(self._log.segment_start(offset), self._log.min_offset)
        dispatched = self._dispatcher.position
        known = max(known, dispatched if dispatched <= offset else self._queues.boundary_at_or_below(offset))
        while known < offset:
            view, start = self._log.segment_view(known)
            walk = SegmentWalk(view, start, known, offset, verify_body=False)
            for _ in walk:
                pass
            segment_end = start + self.segment_size_bytes
            if walk.stop is not Stop.END_OF_SEGMENT or segment_end > offset:
                return walk.position
            known = segment_end
        return known

    def confirm_offset(self) -> int:
        return self._confirm

    def set_confirm_offset(self, offset: int) -> None:
        """Every in-sync replica holds the log up to `offset`. Values above the log's end are lowered to it, values
        below the present one ignored: what was readable stays readable until a truncation."""
        offset = min(offset, self._log.max_offset)
        if offset > self._confirm:
            self._confirm = offset
            self._undispatched.set()
            self._unsaved.set()

    # Readers

    def on_arrival(self, callback: Callable[[list[QueueGrew]], None]) -> None:
        """`callback` with the queues that grew, after each step of dispatch that added something."""
        self._arrival_callbacks.append(callback)

    def dispatch(self) -> bool:
        """One bounded step over mapped segments; True when more can be done at once. The store does this by itself
        whenever the confirm offset moves."""
        position = self._dispatcher.position
        if position >= self._confirm:
            return False
        view, start = self._log.segment_view(position)
        return self._dispatch_in(view, start, start + self.segment_size_bytes)

    def dispatched_offset(self) -> int:
        return self._dispatcher.position

    def get(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int, max_bytes: int,
        tag_filter: TagFilter | None = None,
    ) -> GetResult:  # fmt: skip
        """See QueueReader.get; a cold result needs `load` before its buffers are there."""
        return self._reader.get(topic, queue_id, queue_offset, max_count, max_bytes, tag_filter)

    async def load(self, result: GetResult) -> None:
        await self._reader.load(result)

    def entries(self, topic: str, queue_id: int, queue_offset: int, count_max: int) -> list[QueueEntry]:
        """What a queue lists from `queue_offset` on; nothing below its first or from its end on."""
        return self._reader.entries(topic, queue_id, queue_offset, count_max)

    async def message_at(self, physical_offset: int) -> memoryview | None:
        """The confirmed record that starts at `physical_offset`, or None."""
        return await self._reader.record_at(physical_offset, self._confirm)

    async def find_by_key(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> list[memoryview]:
        """See KeyLookup.find; nothing without an index."""
        if self._index is None:
            return []
        lookup = KeyLookup(self._reader, self._index)
        return await lookup.find(topic, key, count_max, begin_ms, end_ms, self._confirm)

    def last_indexed(self) -> tuple[int, int]:
        """(store time in ms, physical offset) of the last record with a key; zeros when there is none."""
        return self._index.last() if self._index is not None else (0, 0)

    async def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        return await self._reader.store_time_at(topic, queue_id, queue_offset)

    async def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        return await self._reader.offset_by_time(topic, queue_id, timestamp_ms)

    def queues(self) -> list[tuple[str, int]]:
        """(topic, queue id) of every queue that has ever had an entry, sorted."""
        return [(queue.topic, queue.queue_id) for queue in self._queues.all()]

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset after the last readable message; 0 for an unknown queue."""
        queue = self._queues.find(topic, queue_id)
        return queue.max_queue_offset if queue else 0

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queues.find(topic, queue_id)
        return queue.min_queue_offset if queue else 0

    # Background

    async def _dispatch_loop(self) -> None:
        while True:
            await self._undispatched.wait()
            self._undispatched.clear()
            if await self._dispatch_step():
                self._undispatched.set()
                await asyncio.sleep(0)  # others run between two steps

    async def _dispatch_step(self) -> bool:
        position = self._dispatcher.position
        if position >= self._confirm or not self._log.is_cold(position):
            return self.dispatch()
        segment_end = self._log.segment_start(position) + self.segment_size_bytes
        wanted = max(COLD_STEP_BYTES, 2 * self._settings.max_message_size)
        content = await self._log.read_file(position, min(position + wanted, segment_end))
        if self._dispatcher.position != position:  # truncated meanwhile
            return True
        self._dispatch_in(content, position, segment_end)
        return self._dispatcher.position != position

    def _dispatch_in(self, buffer: bytes | memoryview, start: int, segment_end: int) -> bool:
        try:
            more = self._dispatcher.run(buffer, start, segment_end, self._confirm, DISPATCH_STEP_RECORDS)
            self._queues_full = False
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            log.warning("dispatch=waiting position=%d error=%s", self._dispatcher.position, error)
            self._queues_full, more = True, False
            asyncio.get_running_loop().call_later(DISK_FULL_RETRY_S, self._undispatched.set)
        if grown := self._dispatcher.take_grown():
            self._unsaved.set()
            for callback in self._arrival_callbacks:
                callback(grown)
        return more

    async def _flush_loop(self) -> None:
        while True:
            await self._unflushed.wait()
            await asyncio.sleep(self._settings.flush_interval_commit_log / 1000)
            self._unflushed.clear()
            await self.flush()

    async def _save_loop(self) -> None:
        while True:
            await self._unsaved.wait()
            await asyncio.sleep(self._settings.flush_interval_consume_queue / 1000)
            self._unsaved.clear()
            try:
                await self._save()
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                log.warning("checkpoint=waiting error=%s", error)
                self._unsaved.set()

    async def _save(self) -> None:
        """Queues and index to disk, then the checkpoint that vouches for them."""
        position, timestamp = self._dispatcher.position, self._dispatcher.store_timestamp
        await self._queues.sync()
        if self._index is not None:
            await self._index.sync()
            self._checkpoint.index_msg_timestamp = timestamp
        self._queues_synced = min(position, self._dispatcher.position)  # a truncation may have come between
        if position <= self._log.flushed_offset:
            self._checkpoint.physic_msg_timestamp = self._checkpoint.logics_msg_timestamp = timestamp
        await self._save_checkpoint()

    async def _save_checkpoint(self) -> None:
        self._checkpoint.confirm_phy_offset = min(
            self._confirm, self._log.flushed_offset, self._queues_synced
        )
        encoded = self._checkpoint.encode()
        if encoded != self._stored_checkpoint:
            await self._files.replace(FILE, encoded)
            self._stored_checkpoint = encoded
