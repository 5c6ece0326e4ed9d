"""The store of one broker, whatever replicates its log: queues and index kept in step with it, and the checkpoint.

Invariant: dispatched offset <= confirm offset <= max offset, so no reader sees what an in-sync replica may lack; and after the
first failure of the disk nothing more is accepted."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

from messagestore.checkpoint import Checkpoint
from messagestore.errors import LogReplaced, OffsetOutOfRange, RecordDamaged, StoreCorrupted, StoreFailed
from messagestore.index.beginning import IndexStart
from messagestore.index.lookup import KeyLookup
from messagestore.index.mending import IndexMending
from messagestore.index.table import FOLDER as INDEX_FOLDER
from messagestore.index.table import IndexTable
from messagestore.log.appender import Appender
from messagestore.log.commits import SLICE_BYTES, CommitsFound, CommitsIn, commits_in
from messagestore.log.files import LogFiles
from messagestore.log.retention import Segment
from messagestore.messages import (
    Appended,
    GetResult,
    MessageToStore,
    PlainAppended,
    PlainSends,
    PropertyFilter,
    PutStatus,
    QueueEntry,
    QueueGrew,
    RecoveryReport,
    ReplyForm,
    TagFilter,
)
from messagestore.queues.dispatcher import Dispatcher
from messagestore.queues.dispatchloop import DispatchLoop
from messagestore.queues.matching import MatchingReader
from messagestore.queues.reading import QueueReader
from messagestore.queues.saved import SavedQueues
from messagestore.queues.table import FOLDER as QUEUES_FOLDER
from messagestore.queues.table import QueueTable
from messagestore.record import RECORD_SIZE_MIN, pack_host, store_timestamp
from messagestore.record import check as record_check
from messagestore.scrub.scrubber import Scrubber
from messagestore.scrub.soundness import Soundness
from messagestore.scrub.walk import WalkSlice, walk_slice
from messagestore.settings import StoreSettings
from messagestore.trimming import Trimmed, Trimming
from messagestore.walker import segment_name
from mqruntime.diskfull import RetriedWrite
from mqruntime.runtime import Runtime
from mqruntime.segments import DiskSpace
from mqruntime.tasks import Tasks

logger = logging.getLogger(__name__)

ABORT_FILE = "abort"  # exists while a store runs
ABORT_SPARE = "abort.spare"  # what it is while no store runs: on a full disk a new one could not be made
RUNNING = b"running\n"
STOPPED = b"stopped\n"
"""What the first holds where a store was closed with records that no queue lists yet: with that file there Java's brokers go
through all of the log. Without it they would pass over the first of these records for good, and list the next of its queue in
its place (CommitLog.recoverNormally, 5.3.3). Both are of one length: one takes the place of the other on a full disk."""


def was_closed(mark: bytes | None) -> bool:
    """Whether ABORT_FILE, None where there is none, says that the last run stopped by itself. Java's that ran since has written
    the checkpoint, too."""
    return mark is None or mark == STOPPED


class BrokerStore(ABC):
    """Offsets are physical unless called queue offsets. Who inherits brings the log, and says how it is recovered and when it
    takes appends; `dispatcher`, `walk` and `commits` know how records lie in it.

    Start as a slave: `append` refuses until `become_master`."""

    def __init__(
        self,
        runtime: Runtime,
        settings: StoreSettings,
        log: LogFiles,
        *,
        dispatcher: type[Dispatcher] = Dispatcher,
        walk: WalkSlice = walk_slice,
        commits: CommitsIn = commits_in,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.store_host = pack_host("127.0.0.1", 10911)  # of this broker; written into every record it stores
        self.segment_size_bytes = log.segment_size_bytes
        self._clock = runtime.clock
        self._files = runtime.files
        self._segments = runtime.segments
        self._settings = settings
        self._on_fatal = on_fatal
        self._tasks = Tasks(self._fail)
        self._checkpoint_write = RetriedWrite(
            logger, "no checkpoint can be written, trying on", again="checkpoint can be written again"
        )
        self._log = log
        self._queues = QueueTable(
            runtime.segments.subdirectory(QUEUES_FOLDER), settings.mapped_file_size_consume_queue
        )
        self._index = None
        if settings.message_index_enable:
            self._index = IndexTable(
                runtime.segments.subdirectory(INDEX_FOLDER), settings.index_slots, settings.index_entries,
                runtime.clock.now_ms,
            )  # fmt: skip
        self._dispatcher = dispatcher(self._queues, settings.message_delay_level, self._index)
        self._appender: Appender | None = None  # while it is the master
        self.soundness = Soundness(
            log, self._queues.boundary_at_or_below, walk, verify_record=settings.force_verify_prop_crc
        )
        self.scrubber = Scrubber(
            log, self.soundness, self.confirm_offset, runtime.clock,
            bytes_per_second=settings.scrub_bytes_per_second, interval_ms=settings.scrub_interval,
        )  # fmt: skip
        self._commits_in = commits
        self._reader = QueueReader(log, self._queues, self.soundness)
        self._matching = MatchingReader(log, self.soundness, self._reader)
        self._confirm = 0
        self._cuts = 0  # under way
        self.disk_too_full = False
        """Retention says so, and sends are refused before the disk is full."""
        self._running = False
        self._saves = True  # checkpoints
        self._found_mark: bytes | None = None  # what ABORT_FILE held before this start
        self.is_on_disk = False  # all of the log is, after `stop`
        self._failure: BaseException | None = None
        self._append_callbacks: list[Callable[[], None]] = []
        self._flush_callbacks: list[Callable[[], None]] = []
        self._unsaved = asyncio.Event()
        self._dispatch_loop = DispatchLoop(
            log, self._dispatcher,
            confirm_offset=self.confirm_offset,
            record_size_max=settings.max_message_size,
            gathers=lambda: self._appender is None,
            on_progress=self._unsaved.set,
            may_read=self._may_dispatch,
            looks_again=self._dispatch_looks_again,
        )  # fmt: skip
        self._saved = SavedQueues(
            runtime.files, log, self._queues, self._index, self._dispatcher, self.confirm_offset
        )
        self._index_mending = None
        if self._index is not None:
            self._index_mending = IndexMending(
                log, self._queues, self._dispatcher, self._index,
                begin_of=self.begin_of, record_at=self._confirmed_record, on_progress=self._unsaved.set,
                bytes_per_second=settings.scrub_bytes_per_second,
            )  # fmt: skip
        self.trimming = Trimming(
            log, self._queues, self._index, self._dispatcher, self.soundness, self._saved, self._tasks,
            cutting=lambda: self._cuts > 0, moves_up=self._log_moves_up,
        )  # fmt: skip

    async def _log_moves_up(self, offset: int) -> None:  # noqa: B027 - a ledger says so itself
        """Its segments below `offset` are about to be deleted. OSError."""

    # Life

    async def start(self, *, saves: bool = True) -> RecoveryReport:
        """Recovers and begins to serve. Unless it `saves`, no checkpoint is written before `saves_from_now`: the caller may
        still refuse this store, and then `stop` leaves the checkpoint as it was. StoreCorrupted, BadSegments, QueueOffsetGap
        or OSError when it cannot. Whoever runs the process holds the store's lock."""
        self._saves = saves
        try:
            mark = self._found_mark = await self._files.read(ABORT_FILE)
            await self._mark_running(mark)
            checkpoint = await self._saved.load()
            clean = mark is None or (mark == STOPPED and checkpoint.ours)
            vouched_for = checkpoint.confirm_phy_offset
            report = await self._recovered(checkpoint, clean=clean)
            self._confirm = report.confirm_offset
            checked_from = report.walked_from if self._settings.check_crc_on_recover else report.max_offset
            self.soundness.begin(min(checked_from, report.max_offset))
            await self._saved.sync()
            if self._confirm < vouched_for:
                await self._saved.save_checkpoint()  # or what is not there would be missed at the next start
            else:
                await self._save_checkpoint()
            if saves:
                await self._saved.save_ends()
        except BaseException:
            await self._close()
            raise
        self._running = True
        self._begin_tasks()
        self._dispatch_loop.wake()
        return report

    async def saves_from_now(self) -> None:
        """The caller accepts what `start` found, and a checkpoint says so. OSError."""
        self._saves = True
        await self._save_checkpoint()
        self._unsaved.set()

    @abstractmethod
    async def _recovered(self, checkpoint: Checkpoint, *, clean: bool) -> RecoveryReport:
        """Opens log, queues and index and brings them to one state, the dispatcher's place among it. Raises as `start`."""

    def _index_start(self, checkpoint: Checkpoint) -> IndexStart:
        return IndexStart(
            self._log, self._index_mending, checkpoint, self._saved.index_lost, self._clock.now_ms
        )

    def _begin_tasks(self) -> None:
        self._tasks.start(self._dispatch_loop.run(), name="store-dispatch")
        self._tasks.start(self._save_loop(), name="store-checkpoint")
        self._tasks.start(self.scrubber.run(), name="store-scrub")
        if self._index_mending is not None:
            self._tasks.start(self._index_mending.run(), name="store-index-mending")

    async def stop(self) -> None:
        """Everything is on disk on return, but for the checkpoint where the disk is full. Without that, and after a failure,
        which keeps all from being written, the next start recovers."""
        if not self._running:
            return
        self._running, self._appender = False, None
        self._appends_end()
        await self._tasks.stop()
        try:
            if self._failure is None:
                await self._flush_all()
                await self._saved.sync()
                self.is_on_disk = True
                if not self._saves:
                    await self._mark_as_found()
                elif await self._save_checkpoint():
                    await self._saved.save_ends(at_once=True)
                    await self._mark_ended()
        finally:
            await self._close()

    @abstractmethod
    def _appends_end(self) -> None:
        """Nothing is appended any more, by nobody."""

    @abstractmethod
    async def _flush_all(self) -> None:
        """All of the log is on disk on return. OSError."""

    async def _mark_running(self, mark: bytes | None) -> None:
        if mark == STOPPED:
            await self._files.overwrite(ABORT_FILE, RUNNING)
        elif mark is None:
            try:
                await self._files.rename(ABORT_SPARE, ABORT_FILE)
            except FileNotFoundError:
                await self._files.replace(ABORT_FILE, RUNNING)

    async def _mark_as_found(self) -> None:
        """After a start that the caller refused."""
        if self._found_mark == STOPPED:
            await self._files.overwrite(ABORT_FILE, STOPPED)
        elif self._found_mark is None:
            await self._files.rename(ABORT_FILE, ABORT_SPARE)

    async def _mark_ended(self) -> None:
        if self._has_unlisted():
            await self._files.overwrite(ABORT_FILE, STOPPED)
        else:
            await self._files.rename(ABORT_FILE, ABORT_SPARE)

    @abstractmethod
    def _has_unlisted(self) -> bool:
        """Whether Java's brokers would take records that the log holds and no queue lists for listed."""

    async def _close(self) -> None:
        self._queues.close()
        if self._index is not None:
            self._index.close()
        await self._close_log()

    @abstractmethod
    async def _close_log(self) -> None: ...

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self._appends_end()
            self._on_fatal(error if isinstance(error, StoreFailed) else StoreFailed(error))

    def _failed(self, error: OSError | StoreCorrupted) -> StoreFailed:
        self._fail(error)
        return StoreFailed(error)

    # Role

    @abstractmethod
    async def become_master(self) -> None:
        """Accepts appends from now on, behind all that the log holds. StoreFailed, OSError: to be tried again."""

    @abstractmethod
    def become_slave(self) -> None:
        """Appends are refused from now on."""

    # The master's writes

    def append(self, messages: Sequence[MessageToStore]) -> list[Appended]:
        """Stores messages in order, each with its own outcome, and wakes replication once."""
        if self._appender is None or not self._takes_appends:
            return [Appended(-1, -1, -1, 0, -1, PutStatus.SERVICE_NOT_AVAILABLE)] * len(messages)
        before = self._log.max_offset
        appended = self._appender.append(messages, self.store_host, self._clock.now_ms())
        if self._log.max_offset != before:
            self._appended()
        else:
            self._nothing_appended()
        return appended

    def append_plain(
        self, sends: PlainSends, born_host: bytes, added_properties: bytes, reply: ReplyForm
    ) -> PlainAppended | None:
        """As `append` of all of `sends`, or None with nothing done: see Appender.append_plain."""
        if self._appender is None or not self._takes_appends:
            return None
        host, now_ms = self.store_host, self._clock.now_ms()
        appended = self._appender.append_plain(sends, born_host, host, added_properties, reply, now_ms)
        if appended is not None:
            self._appended()
        return appended

    def _appended(self) -> None:
        for callback in self._append_callbacks:
            callback()

    @abstractmethod
    def _nothing_appended(self) -> None:
        """Of what was to be."""

    @property
    def _takes_appends(self) -> bool:
        return not (self._dispatch_loop.full or self._failure is not None or self.disk_too_full)

    def takes_messages(self) -> bool:
        """Whether a master's appends are stored, as far as the disk is concerned."""
        return self._takes_appends and self._log.has_room_for(self._settings.max_message_size)

    @abstractmethod
    def sync_lasts_ms(self) -> int:
        """For how long the flush that is under way has been; 0 when none is."""

    def on_append(self, callback: Callable[[], None]) -> None:
        """`callback()` after each append that stored something: once for all its messages."""
        self._append_callbacks.append(callback)

    def on_flush(self, callback: Callable[[], None]) -> None:
        """`callback()` after each flush: more of the log may be on disk. With SYNC_FLUSH a flush follows whatever makes the log
        grow, on a slave, too; one at a time, each for all that came before it."""
        self._flush_callbacks.append(callback)

    @abstractmethod
    async def synced_to(self, end: int) -> None:
        """What the log holds below `end` is on disk on return, here or where whoever leads next has it from. OSError."""

    @abstractmethod
    async def write_anew(self, offset: int) -> None:
        """What the log holds from `offset` on is on disk on return, also where a sync failed before. StoreFailed."""

    @property
    def sync_failed(self) -> bool:
        """Whether a sync of the log has failed: a later one may succeed and say nothing of what this one left."""
        return False

    def flushed_offset(self) -> int:
        return self._log.flushed_offset

    def disk_space(self) -> DiskSpace:
        """Of the store's file system. OSError."""
        return self._segments.disk_space()

    async def _may_dispatch(self, start: int, end: int) -> bool:
        """Before what stands there comes into queues and index; False, and it waits."""
        return True

    def _dispatch_looks_again(self, position: int) -> bool:
        """Whether dispatch, which found no record at `position`, is to ask that once more."""
        return False

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

    def confirm_offset(self) -> int:
        return self._confirm

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

    def first_message_offset(self) -> int | None:
        """Where the first one begins, confirmed or not; None where none stands at the log's beginning. From the mapping."""
        return self._log.first_record()

    def first_store_time(self) -> int | None:
        """Of the first confirmed record, ms; None without any. From the mapping: for one look, not for many."""
        first = self._log.first_record()
        if first is None or first + RECORD_SIZE_MIN > self._confirm:
            return None
        return store_timestamp(self._log.read(first, RECORD_SIZE_MIN), 0)

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

    @property
    def dispatch_waits(self) -> bool:
        """For a disk that does not give the log: messages come into no queue, though they are stored."""
        return self._dispatch_loop.unread

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

    def get_matching(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int, max_bytes: int, wanted: PropertyFilter
    ) -> GetResult:  # fmt: skip
        """See MatchingReader.get."""
        return self._matching.get(topic, queue_id, queue_offset, max_count, max_bytes, wanted)

    async def read_matching(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int, max_bytes: int, wanted: PropertyFilter
    ) -> GetResult:  # fmt: skip
        """See MatchingReader.read."""
        return await self._matching.read(topic, queue_id, queue_offset, max_count, max_bytes, wanted)

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

    async def message_at(self, physical_offset: int, size: int = 0) -> memoryview | None:
        """The confirmed record that starts at `physical_offset`, of `size` bytes where a queue says so, or None. Whoever asks
        may make a new record of it, with CRCs of its own, so it is compared with those it has each time: what was checked may
        have rotted since. RecordDamaged, OSError."""
        content = await self._reader.record_at(physical_offset, self._confirm)
        if content is not None and self._is_as_written(content, physical_offset):
            return content
        doubted = await self._doubted(physical_offset, size if content is None else len(content))
        if doubted is None:
            return None
        self.soundness.doubt(*doubted)
        try:
            await self.soundness.check(doubted[0], doubted[1] - doubted[0])
        except LogReplaced:
            raise
        except OffsetOutOfRange:  # retention took it meanwhile
            return None
        content = await self._reader.record_at(physical_offset, self._confirm)
        if content is None or self._is_as_written(content, physical_offset):
            return content
        segment = segment_name(self._log.segment_start(physical_offset))
        raise RecordDamaged(segment, physical_offset, "it reads otherwise each time")

    def _is_as_written(self, content: memoryview, physical_offset: int) -> bool:
        size = len(content)
        verify_record = self._settings.force_verify_prop_crc
        return record_check(content, 0, size, physical_offset, verify_record=verify_record) == size

    async def _doubted(self, record_offset: int, size: int) -> tuple[int, int] | None:
        """From where to where to look again for a record of `size` bytes that is not as it was written; None where none is
        known to stand there. OSError."""
        end = record_offset + size
        if size <= 0 or record_offset < self._log.min_offset or end > self._confirm:
            return None
        if end < self._log.max_offset and not await self._log.is_boundary(end):
            return None  # whoever said so is wrong
        return record_offset, end

    async def commits_from(self, position: int, limit: int) -> CommitsFound:
        """The halves that the next few records commit, from `position` on, where one begins with what is around it, and up to
        `limit`, where one ends; the next look begins at its `end`. OSError, OffsetOutOfRange."""
        segment_end = self._log.segment_start(position) + self.segment_size_bytes
        stop = min(position + SLICE_BYTES, segment_end, limit)
        look = partial(self._commits_in, start=position, segment_end=segment_end, limit=limit)
        return await self._log.examine(position, stop, look)

    def begin_of(self, record_offset: int) -> int:
        """Where that begins in which the log holds the record at `record_offset`."""
        return record_offset

    async def find_by_key(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int, *, by_tag: bool = False
    ) -> list[memoryview]:
        """See KeyLookup.find; nothing without an index."""
        if self._index is None:
            return []
        lookup = KeyLookup(self._reader, self._index)
        begin = self._queues.begin_of(topic)
        return await lookup.find(topic, key, count_max, begin_ms, end_ms, begin, self._confirm, by_tag=by_tag)

    def tags_missing_until(self, topic: str) -> int | None:
        """The store time, ms, up to which `find_by_key` may miss messages of this topic by their tag, because index files of
        other versions hold none; None where it misses none."""
        if self._index is None or self._index.tags_since.phy <= max(
            self._log.min_offset, self._queues.begin_of(topic)
        ):
            return None
        return self._index.tags_since.store_ms

    @property
    def index_is_filled(self) -> bool:
        """False while records are indexed again that files lost: `find_by_key` may miss some."""
        return self._index_mending is None or not self._index_mending.fills

    async def _confirmed_record(self, physical_offset: int) -> memoryview | None:
        return await self._reader.record_at(physical_offset, self._confirm)

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
        return self._queues.first_of(queue) if queue else self._queues.told_end(topic, queue_id)

    def queue_ends_at_least(self, topic: str, queue_id: int, end: int) -> None:
        """This queue has given out all offsets below `end`: a log that begins after its last message does not say so."""
        self._queues.ends_at_least(topic, queue_id, end)

    def topic_begins_at(self, topic: str, log_offset: int) -> None:
        """The topic was deleted when the log ended there: what stands below is in its queues no more. 0: it was not."""
        self._queues.topic_begins_at(topic, log_offset)

    def emptied_queues(self) -> list[tuple[str, int, int]]:
        """(topic, queue id, next offset) of each queue that has given out offsets and holds no message any more."""
        return self._queues.emptied()

    @property
    def tables_noted(self) -> bool:
        """Whether a checkpoint says that tables were on the disk of this log; read by `start`."""
        return self._saved.tables_noted

    def note_tables(self) -> None:
        """Tables are on the disk of this log, durably: the next checkpoint says so, for a start that finds none of them."""
        self._saved.note_tables()

    # Background

    async def _save_loop(self) -> None:
        while True:
            await self._unsaved.wait()
            await asyncio.sleep(self._settings.flush_interval_consume_queue / 1000)
            self._unsaved.clear()
            await self._saved.sync()
            if await self._save_checkpoint() and self._saves:
                await self._saved.save_ends()

    async def _save_checkpoint(self) -> bool:
        """False when the disk has no room for it; then it is saved once there is. OSError."""
        if not self._saves:
            return True
        if await self._checkpoint_write.attempt(self._saved.save_checkpoint()):
            return True
        self._unsaved.set()
        return False
