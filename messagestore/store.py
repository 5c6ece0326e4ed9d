"""The message store of one broker: commit log, consume queues, index and checkpoint kept in step.

Invariant: dispatched offset <= confirm offset <= max offset, so no reader sees what an in-sync replica may lack; the
confirm offset falls only by a truncation; and after the first failure of the disk nothing more is accepted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from messagestore.beginning import KeptBeginning
from messagestore.errors import RecordDamaged, StoreCorrupted, StoreFailed
from messagestore.index.lookup import KeyLookup
from messagestore.index.table import FOLDER as INDEX_FOLDER
from messagestore.index.table import IndexTable
from messagestore.log.appender import Appender
from messagestore.log.commitlog import FOLDER, CommitLog
from messagestore.log.nextsegment import NextSegment
from messagestore.log.recovery import Recovery
from messagestore.log.retention import Segment
from messagestore.log.tail import LogTail
from messagestore.messages import (
    Appended,
    GetResult,
    MessageToStore,
    PlainAppended,
    PlainSends,
    PutStatus,
    QueueEntry,
    QueueGrew,
    RecoveryReport,
    ReplyForm,
    TagFilter,
)
from messagestore.queues.dispatcher import Dispatcher
from messagestore.queues.dispatchloop import DispatchLoop
from messagestore.queues.reading import QueueReader
from messagestore.queues.saved import SavedQueues
from messagestore.queues.table import FOLDER as QUEUES_FOLDER
from messagestore.queues.table import QueueTable
from messagestore.record import pack_host
from messagestore.scrub.scrubber import Scrubber
from messagestore.scrub.soundness import Soundness
from messagestore.settings import FlushDiskType, StoreSettings
from messagestore.trimming import Trimmed, Trimming
from mqruntime.diskfull import DISK_FULL, RetriedWrite
from mqruntime.runtime import Runtime
from mqruntime.segments import DiskSpace
from mqruntime.tasks import Tasks

logger = logging.getLogger(__name__)

ABORT_FILE = "abort"  # exists while a store runs; found at start, the last run did not stop by itself
ABORT_SPARE = "abort.spare"  # what it is while no store runs: on a full disk a new one could not be made


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
        self._segments = runtime.segments
        self._settings = settings
        self._on_fatal = on_fatal
        self._tasks = Tasks(self._fail)
        self._checkpoint_write = RetriedWrite(
            logger, "no checkpoint can be written, trying on", again="checkpoint can be written again"
        )
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
        self._appender: Appender | None = None  # while it is the master
        self._next_segment = NextSegment(self._log, self._tasks)
        self.soundness = Soundness(
            self._log, self._queues.boundary_at_or_below, verify_record=settings.force_verify_prop_crc
        )
        self.scrubber = Scrubber(
            self._log, self.soundness, self.confirm_offset, runtime.clock,
            bytes_per_second=settings.scrub_bytes_per_second, interval_ms=settings.scrub_interval,
        )  # fmt: skip
        self._reader = QueueReader(self._log, self._queues, self.soundness)
        self._confirm = 0
        self._beginning = KeptBeginning(runtime.files)
        self._cuts = 0  # under way
        self.disk_too_full = False
        """Retention says so, and sends are refused before the disk is full."""
        self._running = False
        self.is_on_disk = False  # all of the log is, after `stop`
        self._failure: BaseException | None = None
        self._append_callbacks: list[Callable[[], None]] = []
        self._flush_callbacks: list[Callable[[], None]] = []
        self._unflushed = asyncio.Event()
        self._flush_began_ms: int | None = None
        self._unsaved = asyncio.Event()
        self._dispatch_loop = DispatchLoop(
            self._log, self._dispatcher,
            confirm_offset=self.confirm_offset,
            record_size_max=settings.max_message_size,
            gathers=lambda: self._appender is None,
            on_progress=self._unsaved.set,
        )  # fmt: skip
        self._tail = LogTail(self._log, self._queues, self._dispatcher, self._dispatch_loop.held)
        self._saved = SavedQueues(
            runtime.files, self._log, self._queues, self._index, self._dispatcher, self.confirm_offset
        )
        self.trimming = Trimming(
            self._log, self._queues, self._index, self._dispatcher, self.soundness, self._saved, self._tasks,
            cutting=lambda: self._cuts > 0,
        )  # fmt: skip

    # Life

    async def start(self) -> RecoveryReport:
        """Recovers and begins to serve. StoreCorrupted, BadSegments, QueueOffsetGap or OSError when it cannot. Whoever
        runs the process holds the store's lock."""
        try:
            clean = await self._files.read(ABORT_FILE) is None
            if clean:
                await self._mark_running()
            checkpoint = await self._saved.load()
            vouched_for = checkpoint.confirm_phy_offset
            recovery = Recovery(
                self._log, self._queues, self._dispatcher, checkpoint, self._index,
                verify_body=self._settings.check_crc_on_recover, verify_record=self._settings.force_verify_prop_crc,
                index_lost=self._saved.index_lost,
                begins=await self._beginning.load(),
            )  # fmt: skip
            report = await recovery.run(clean=clean)
            self._confirm = report.confirm_offset
            checked_from = report.walked_from if self._settings.check_crc_on_recover else report.max_offset
            self.soundness.begin(min(checked_from, report.max_offset))
            await self._saved.sync()
            if self._confirm < vouched_for:
                await self._saved.save_checkpoint()  # or what is not there would be missed at the next start
            else:
                await self._save_checkpoint()
        except BaseException:
            self._close()
            raise
        self._running = True
        self._tasks.start(self._flush_loop(), name="store-flush")
        self._tasks.start(self._dispatch_loop.run(), name="store-dispatch")
        self._tasks.start(self._save_loop(), name="store-checkpoint")
        self._tasks.start(self.scrubber.run(), name="store-scrub")
        self._dispatch_loop.wake()
        return report

    async def stop(self) -> None:
        """Everything is on disk on return, but for the checkpoint where the disk is full. Without that, and after a failure,
        which keeps all from being written, the next start recovers."""
        if not self._running:
            return
        self._running, self._appender = False, None
        self._next_segment.stop()
        await self._tasks.stop()
        try:
            if self._failure is None:
                await self._log.flush()
                await self._saved.sync()
                self.is_on_disk = True
                if await self._save_checkpoint():
                    await self._files.rename(ABORT_FILE, ABORT_SPARE)
        finally:
            self._close()

    async def _mark_running(self) -> None:
        try:
            await self._files.rename(ABORT_SPARE, ABORT_FILE)
        except FileNotFoundError:
            await self._files.replace(ABORT_FILE, b"running\n")

    def _close(self) -> None:
        self._queues.close()
        if self._index is not None:
            self._index.close()
        self._log.close()

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self._next_segment.stop()
            self._on_fatal(error if isinstance(error, StoreFailed) else StoreFailed(error))

    def _failed(self, error: OSError | StoreCorrupted) -> StoreFailed:
        self._fail(error)
        return StoreFailed(error)

    # Role

    async def become_master(self) -> None:
        """Ends the log at a record boundary, finds the next queue offsets and accepts appends. Takes as long as a look at
        each record that is not dispatched yet, others run meanwhile; again it does no harm. As `truncate` raises; OSError."""
        await self.truncate(self._log.max_offset)
        await self._beginning.note(self._log.min_offset, self._log.max_offset)
        try:
            next_offsets, timestamp = await self._tail.next_offsets()
        except OSError as error:
            raise self._failed(error) from error
        if self._running:
            self._appender = Appender(
                self._log, self._settings.max_message_size, next_offsets, timestamp, self._dispatcher.known,
                record_crcs=self._settings.enabled_append_prop_crc,
            )  # fmt: skip

    def become_slave(self) -> None:
        """Appends are refused from now on; the log grows through write_view and advance."""
        self._appender = None
        self._dispatcher.known.clear()

    # The master's writes

    def append(self, messages: Sequence[MessageToStore]) -> list[Appended]:
        """Stores messages in order, each with its own outcome, and wakes replication once."""
        if self._appender is None or not self._takes_appends:
            return [Appended(-1, -1, -1, 0, -1, PutStatus.SERVICE_NOT_AVAILABLE)] * len(messages)
        before = self._log.max_offset
        appended = self._appender.append(messages, self.store_host, self._clock.now_ms())
        if self._log.max_offset != before:
            self._grown(self._append_callbacks)
        else:
            self._next_segment.prepare_soon()  # the disk may have refused the segment that they need
        return appended

    def append_plain(
        self, sends: PlainSends, born_host: bytes, added_properties: bytes, reply: ReplyForm
    ) -> PlainAppended | None:
        """As `append` of all of `sends`, or None with nothing done: see Appender.append_plain."""
        if self._appender is None or not self._takes_appends:
            return None
        given = born_host, self.store_host, added_properties, reply, self._clock.now_ms()
        if (appended := self._appender.append_plain(sends, *given)) is not None:
            self._grown(self._append_callbacks)
        return appended

    @property
    def _takes_appends(self) -> bool:
        return not (self._dispatch_loop.full or self._failure is not None or self.disk_too_full)

    def takes_messages(self) -> bool:
        """Whether a master's appends are stored, as far as the disk is concerned."""
        return self._takes_appends and self._log.has_room_for(self._settings.max_message_size)

    def sync_lasts_ms(self) -> int:
        """For how long the flush that is under way has been; 0 when none is."""
        began_ms = self._flush_began_ms
        return 0 if began_ms is None else self._clock.monotonic_ms() - began_ms

    def on_append(self, callback: Callable[[], None]) -> None:
        """`callback()` after each append that stored something: once for all its messages."""
        self._append_callbacks.append(callback)

    def on_flush(self, callback: Callable[[], None]) -> None:
        """`callback()` after each flush: more of the log may be on disk. With SYNC_FLUSH a flush follows whatever makes the log
        grow, on a slave, too; one at a time, each for all that came before it."""
        self._flush_callbacks.append(callback)

    def _grown(self, callbacks: Sequence[Callable[[], None]] = ()) -> None:
        self._unflushed.set()
        self._next_segment.prepare_soon()
        for callback in callbacks:
            callback()

    async def flush(self) -> int:
        """What was appended before the call is on disk on return. StoreFailed when the disk failed, now or before.
        Returns flushed_offset."""
        if self._failure is not None:
            raise StoreFailed(self._failure)
        try:
            flushed = await self._log.flush()
        except OSError as error:
            raise self._failed(error) from error
        self._unsaved.set()
        return flushed

    async def write_anew(self, offset: int) -> None:
        """See CommitLog.write_anew. StoreFailed."""
        try:
            await self._log.write_anew(offset)
        except OSError as error:
            raise self._failed(error) from error

    @property
    def sync_failed(self) -> bool:
        """Whether a sync of the log has failed: a later one may succeed and say nothing of what this one left."""
        return self._log.sync_failed

    def flushed_offset(self) -> int:
        return self._log.flushed_offset

    def disk_space(self) -> DiskSpace:
        """Of the store's file system. OSError."""
        return self._segments.disk_space()

    # The log, as replication sees it

    def has_segments(self) -> bool:
        """False for a log that never held a byte, or whose files are gone."""
        return self._log.has_segments

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

    def at_hand(self, offset: int, size: int) -> memoryview | None:
        """`read`, where the bytes are checked, see Soundness, and no disk is waited for; else None."""
        return self._log.at_hand(offset, size) if self.soundness.is_checked(offset, size) else None

    async def check(self, offset: int, size: int) -> str | None:
        """Reads and checks what of them is unchecked; what is damaged there, None for nothing. OSError."""
        try:
            await self.soundness.check(offset, size)
        except RecordDamaged as damage:
            return str(damage)
        return None

    async def repair(self, offset: int, content: bytes) -> bool:
        """Puts another replica's record in the place of the damaged one at `offset`; False when it is not sound or does not
        fit there, above the confirm offset nothing does. StoreFailed."""
        if offset + len(content) > self._confirm or not await self.soundness.fits(offset, content):
            return False
        try:
            written = await self._log.rewrite(offset, content, lambda: offset in self.soundness.damages)
        except OSError as error:
            raise self._failed(error) from error
        if written:
            self.soundness.repaired(offset, len(content))
        return written

    async def is_boundary(self, offset: int) -> bool:
        """Whether a record, or the end of a segment's records, begins at `offset`, which is within the log. OSError."""
        return await self._log.is_boundary(offset)

    async def last_record(self) -> tuple[int, bytes] | None:
        """The last whole record that is sound, and where it begins; None without any. StoreFailed."""
        end = self._log.max_offset
        while end > self._log.min_offset:
            try:
                end = await self._tail.boundary_at_or_below(end - 1, self._confirm)
                content = await self._reader.record_at(end, self._log.max_offset)
            except RecordDamaged:
                continue  # the soundness of the log tells of it
            except (OSError, StoreCorrupted) as error:
                raise self._failed(error) from error
            if content is not None:
                return end, bytes(content)
        return None

    def write_view(self, offset: int, size_max: int) -> memoryview:
        """Where received log bytes go; see CommitLog.write_view. StoreFailed after a failure, OSError (ENOSPC)."""
        assert self._appender is None, "a master's log is not written by a slave's link"
        if self._failure is not None:
            raise StoreFailed(self._failure)
        view = self._log.write_view(offset, size_max)
        if self._dispatcher.position < self._log.min_offset:  # an empty log has just got its beginning
            self._dispatcher.position = self._dispatcher.log_min = self._confirm = self._log.min_offset
        return view

    async def begin_empty_at(self, offset: int) -> None:
        """The log, which holds nothing, is about to begin at `offset`, and says so durably on return. OSError."""
        await self._log.drop_empty(but_at=offset)
        await self._beginning.note(offset, offset)

    def advance(self, end: int) -> None:
        self._log.advance(end)
        self._grown()

    async def truncate(self, offset: int) -> int:
        """Log, queues and confirm offset end with the last whole record that is not above `offset`, durably on return; where
        that is. Called with max_offset it erases what an ended connection left above the log's end; to be done before a new
        connection fills it. OSError of a full disk, with nothing cut: to be done again. StoreFailed."""
        self._cuts += 1
        try:
            return await self._truncate(offset)
        finally:
            self._cuts -= 1

    async def _truncate(self, offset: int) -> int:
        try:
            offset = await self._tail.boundary_at_or_below(offset, self._confirm)
            await self._log.prepare_cut(offset)
        except OSError as error:  # told by the log
            if error.errno not in DISK_FULL:
                raise self._failed(error) from error
            raise
        except StoreCorrupted as error:
            raise self._failed(error) from error
        confirm, self._confirm = self._confirm, min(self._confirm, offset)
        try:
            await self._saved.announce_cut(offset)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise self._failed(error) from error
            self._confirm = max(confirm, self._confirm)
            self._checkpoint_write.failed(error)
            self._unsaved.set()
            raise
        self.soundness.cut(offset)
        self._dispatcher.known.clear()
        try:
            await self._saved.truncate(offset)
            self._tail.cut(offset)
            await self._log.truncate(offset)
        except OSError as error:
            raise self._failed(error) from error
        return offset

    async def begin_anew(self) -> None:
        """A log that ends at 0 may begin at any segment again. StoreFailed."""
        try:
            await self._log.drop_empty()
        except OSError as error:
            raise self._failed(error) from error

    def confirm_offset(self) -> int:
        return self._confirm

    async def confirm_whole_records(self) -> None:
        """The confirm offset ends a record from now on. Nothing was answered of one that was confirmed in part, and who leads
        next may lack its other part. To be called where nothing confirms meanwhile. StoreFailed."""
        try:
            self._confirm = await self._tail.boundary_at_or_below(self._confirm, self._confirm)
        except (OSError, StoreCorrupted) as error:
            raise self._failed(error) from error

    def set_confirm_offset(self, offset: int) -> None:
        """Every in-sync replica holds the log up to `offset`. Values above the log's end are lowered to it, values
        below the present one ignored: what was readable stays readable until a truncation."""
        offset = min(offset, self._log.max_offset)
        if offset > self._confirm:
            self._confirm = offset
            self._dispatch_loop.wake()
            self._unsaved.set()

    # Retention

    async def oldest_segments(self, count_max: int) -> list[Segment]:
        """Without the last one. OSError."""
        return await self._log.segments_behind_first(count_max)

    def vouched_offset(self) -> int:
        """Up to here nothing is lost by a crash, and nothing above may be deleted."""
        return self.trimming.vouched_offset()

    async def begin_at(self, offset: int, allowed: Callable[[], bool]) -> Trimmed:
        """See Trimming.begin_at; with min_offset it deletes what an earlier round left."""
        return await self.trimming.begin_at(offset, allowed)

    async def follow_log(self) -> Trimmed:
        """Queues and index give up the files that lead to nothing any more. OSError."""
        return await self.trimming.follow()

    # Readers

    def on_arrival(self, callback: Callable[[list[QueueGrew]], None]) -> None:
        """`callback` with the queues that grew, after each step of dispatch that added something."""
        self._dispatch_loop.on_arrival(callback)

    def dispatch(self) -> bool:
        """One bounded step over mapped segments; True when more can be done at once. The store does this by itself
        whenever the confirm offset moves."""
        return self._dispatch_loop.step()

    def dispatched_offset(self) -> int:
        return self._dispatcher.position

    def queue_offset_skips(self) -> int:
        """Records, since the start, whose queue offset was not the next one of their queue, or that no queue can list."""
        return self._dispatcher.skips

    def get(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int, max_bytes: int,
        tag_filter: TagFilter | None = None,
    ) -> GetResult:  # fmt: skip
        """See QueueReader.get; a cold result needs `load` before its buffers are there."""
        return self._reader.get(topic, queue_id, queue_offset, max_count, max_bytes, tag_filter)

    def is_at_hand(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> bool:
        """Whether `get` waits for no disk; else `await bring(...)` first. OSError."""
        return self._reader.is_at_hand(topic, queue_id, queue_offset, max_count)

    async def bring(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> None:
        await self._reader.bring(topic, queue_id, queue_offset, max_count)

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
        return queue.max_queue_offset if queue else self._queues.told_end(topic, queue_id)

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """What a master gives to the next message; not below `max_queue_offset`, as dispatch may be behind."""
        if self._appender is None:
            return self.max_queue_offset(topic, queue_id)
        return self._appender.next_queue_offset(topic, queue_id)

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queues.find(topic, queue_id)
        return queue.min_queue_offset if queue else self._queues.told_end(topic, queue_id)

    def queue_ends_at_least(self, topic: str, queue_id: int, end: int) -> None:
        """This queue has given out all offsets below `end`: a log that begins after its last message does not say so."""
        self._queues.ends_at_least(topic, queue_id, end)

    def emptied_queues(self) -> list[tuple[str, int, int]]:
        """(topic, queue id, next offset) of each queue that has given out offsets and holds no message any more."""
        return self._queues.emptied()

    # Background

    async def _flush_loop(self) -> None:
        waited_for = self._settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
        while True:
            await self._unflushed.wait()
            if not waited_for:
                await asyncio.sleep(self._settings.flush_interval_commit_log / 1000)
            self._unflushed.clear()
            self._flush_began_ms = self._clock.monotonic_ms()
            await self.flush()
            self._flush_began_ms = None
            for callback in self._flush_callbacks:
                callback()

    async def _save_loop(self) -> None:
        while True:
            await self._unsaved.wait()
            await asyncio.sleep(self._settings.flush_interval_consume_queue / 1000)
            self._unsaved.clear()
            await self._saved.sync()
            await self._save_checkpoint()

    async def _save_checkpoint(self) -> bool:
        """False when the disk has no room for it; then it is saved once there is. OSError."""
        if await self._checkpoint_write.attempt(self._saved.save_checkpoint()):
            return True
        self._unsaved.set()
        return False
