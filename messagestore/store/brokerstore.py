"""The store of one broker, however its log is replicated. It keeps queues and index in step with the log, and saves the
checkpoint.

Invariant: dispatched offset <= confirm offset <= max offset, so no reader gets a record that an in-sync replica may be
missing. After the first disk failure the store accepts nothing more."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

from messagestore.checkpoint import Checkpoint
from messagestore.dispatch.dispatcher import Dispatcher
from messagestore.dispatch.dispatchloop import DispatchLoop
from messagestore.dispatch.entrymending import EntryMending
from messagestore.dispatch.indexmending import IndexMending
from messagestore.dispatch.indexstart import IndexStart
from messagestore.dispatch.savedqueues import SavedQueues
from messagestore.errors import LogReplaced, OffsetOutOfRange, RecordDamaged, StoreCorrupted, StoreFailed
from messagestore.index.lookup import KeyLookup
from messagestore.index.table import FOLDER as INDEX_FOLDER
from messagestore.index.table import IndexTable
from messagestore.log.appender import Appender
from messagestore.log.commits import SLICE_BYTES, CommitsFound, CommitsIn, commits_in
from messagestore.log.files import LogFiles
from messagestore.log.retention import RetainedSegment
from messagestore.messages import (
    GetResult,
    MessageToStore,
    PlainAppended,
    PlainSends,
    PropertyFilter,
    PutResult,
    PutStatus,
    QueueEntry,
    QueueGrew,
    RecoveryReport,
    ReplyForm,
    TagFilter,
)
from messagestore.queues.matching import MatchingReader
from messagestore.queues.reading import QueueReader
from messagestore.queues.table import FOLDER as QUEUES_FOLDER
from messagestore.queues.table import QueueTable
from messagestore.record import RECORD_SIZE_MIN, decode, pack_host, store_timestamp
from messagestore.record import check as record_check
from messagestore.scrub.scrubber import Scrubber
from messagestore.scrub.soundness import Integrity
from messagestore.scrub.walk import WalkSlice, walk_slice
from messagestore.store.settings import StoreSettings
from messagestore.store.trimming import Trimmed, Trimming
from messagestore.walker import segment_name
from mqruntime.diskfull import RetriedWrite
from mqruntime.runtime import Runtime
from mqruntime.segments import DiskSpace
from mqruntime.tasks import Tasks

logger = logging.getLogger(__name__)

ABORT_FILE = "abort"  # exists while a store runs (upstream's abort file)
ABORT_SPARE = "abort.spare"  # the file's name while no store runs: a full disk may not take a new file
RUNNING = b"running\n"
STOPPED = b"stopped\n"
"""Content of ABORT_FILE if the store was closed while some records were in no queue. The file makes a Java broker scan the
whole log. Without the file, a Java broker would skip the first of these records for ever, and list the queue's next record in
its place (CommitLog.recoverNormally, 5.3.3). Both contents have the same length, so that one can overwrite the other on a full
disk."""


def was_closed(mark: bytes | None) -> bool:
    """Whether ABORT_FILE (None: absent) says that the last run stopped cleanly. If a Java broker has run since, the checkpoint
    shows it, because Java writes the checkpoint too."""
    return mark is None or mark == STOPPED


class BrokerStore(ABC):
    """The common part of both stores. Offsets are physical unless they are called queue offsets. A subclass provides the log
    and its recovery, and decides when the log takes appends. `dispatcher`, `walk` and `commits` know the log's record framing.

    The store starts as a slave: `append` rejects messages until `become_master`."""

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
        self.store_host = pack_host("127.0.0.1", 10911)  # this broker's host, for the records that it stores
        self.segment_size_bytes = log.segment_size_bytes
        self._clock = runtime.clock
        self._files = runtime.files
        self._segments = runtime.segments
        self._settings = settings
        self._on_fatal = on_fatal
        self._tasks = Tasks(self._fail)
        self._checkpoint_write = RetriedWrite(
            logger, "no checkpoint can be written, retrying", again="checkpoint can be written again"
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
        self._appender: Appender | None = None  # only on the master
        self.integrity = Integrity(
            log, self._queues.boundary_at_or_below, walk, verify_record=settings.force_verify_prop_crc
        )
        self.entry_mending = EntryMending(log, self._queues, self._dispatcher)
        self.scrubber = Scrubber(
            log, self.integrity, self.entry_mending, self.confirm_offset, runtime.clock,
            bytes_per_second=settings.scrub_bytes_per_second, interval_ms=settings.scrub_interval,
        )  # fmt: skip
        self._commits_in = commits
        self._reader = QueueReader(log, self._queues, self.integrity)
        self._matching = MatchingReader(log, self.integrity, self._reader)
        self._confirm = 0
        self._cuts = 0  # number of cuts under way
        self.disk_too_full = False
        """Set by retention: the disk is nearly full, so sends are rejected."""
        self._running = False
        self._saves = True  # whether checkpoints are written
        self._found_mark: bytes | None = None  # what ABORT_FILE held before this start
        self.is_on_disk = False  # after `stop`: whether all of the log is on disk
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
            log, self._queues, self._index, self._dispatcher, self.integrity, self._saved, self._tasks,
            cutting=lambda: self._cuts > 0, moves_up=self._log_moves_up,
        )  # fmt: skip

    async def _log_moves_up(self, offset: int) -> None:  # noqa: B027 - a ledger records this itself
        """Record that the segments below `offset` are about to be deleted. Raises OSError."""

    # Life

    async def start(self, *, saves: bool = True) -> RecoveryReport:
        """Recover the store and begin to serve. With `saves` False no checkpoint is written before `saves_from_now`, because
        the caller may still reject this store; then `stop` leaves the checkpoint as it was. The caller's process must hold the
        store's lock. Raises StoreCorrupted, BadSegments, QueueOffsetGap or OSError."""
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
            self.integrity.begin(min(checked_from, report.max_offset))
            await self._saved.sync()
            if self._confirm < vouched_for:
                await self._saved.save_checkpoint()  # else the next start would miss the lost part
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
        """Write a checkpoint: the caller accepts what `start` found. Raises OSError."""
        self._saves = True
        await self._save_checkpoint()
        self._unsaved.set()

    @abstractmethod
    async def _recovered(self, checkpoint: Checkpoint, *, clean: bool) -> RecoveryReport:
        """Open log, queues and index, and make them and the dispatch position consistent. Raises what `start` raises."""

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
        """Sync everything and stop. On a full disk the checkpoint is not written, and after a disk failure nothing is written.
        In both cases the next start recovers."""
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
        """Stop all appends, by any caller."""

    @abstractmethod
    async def _flush_all(self) -> None:
        """Sync all of the log. Raises OSError."""

    async def _mark_running(self, mark: bytes | None) -> None:
        if mark == STOPPED:
            await self._files.overwrite(ABORT_FILE, RUNNING)
        elif mark is None:
            try:
                await self._files.rename(ABORT_SPARE, ABORT_FILE)
            except FileNotFoundError:
                await self._files.replace(ABORT_FILE, RUNNING)

    async def _mark_as_found(self) -> None:
        """Restore ABORT_FILE after a start that the caller rejected."""
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
        """Whether Java brokers would skip records that the log holds and no queue lists."""

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
        """Accept appends from now on, at the log's end. Raises StoreFailed or OSError: the caller tries again."""

    @abstractmethod
    def become_slave(self) -> None:
        """Reject appends from now on."""

    # The master's writes

    def append(self, messages: Sequence[MessageToStore]) -> list[PutResult]:
        """Store messages in order, each with its own outcome, and then wake replication once."""
        if self._appender is None or not self._takes_appends:
            return [PutResult(-1, -1, -1, 0, -1, PutStatus.SERVICE_NOT_AVAILABLE)] * len(messages)
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
        """Append all of `sends`, or return None with nothing done: see Appender.append_plain."""
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
        """Called when an append stored nothing."""

    @property
    def _takes_appends(self) -> bool:
        return not (self._dispatch_loop.full or self._failure is not None or self.disk_too_full)

    def takes_messages(self) -> bool:
        """Whether the disk has room for a master's appends."""
        return self._takes_appends and self._log.has_room_for(self._settings.max_message_size)

    @abstractmethod
    def sync_lasts_ms(self) -> int:
        """How long the flush in progress has taken; 0 if there is none."""

    def on_append(self, callback: Callable[[], None]) -> None:
        """Register a callback that is called after each append that stored something, once for all its messages."""
        self._append_callbacks.append(callback)

    def on_flush(self, callback: Callable[[], None]) -> None:
        """Register a callback that is called after each flush, because more of the log may be on disk. With SYNC_FLUSH a flush
        follows each growth of the log, also on a slave. One flush runs at a time and covers everything before it."""
        self._flush_callbacks.append(callback)

    @abstractmethod
    async def synced_to(self, end: int) -> None:
        """Wait until the log below `end` is on disk, here or where the next leader reads it. Raises OSError."""

    @abstractmethod
    async def sync_again(self, offset: int) -> None:
        """Sync the log from `offset` on, also pages whose sync failed before. Raises StoreFailed."""

    @property
    def sync_failed(self) -> bool:
        """Whether a sync of the log has failed. A later sync may succeed although data of the failed sync is lost."""
        return False

    def flushed_offset(self) -> int:
        return self._log.flushed_offset

    def disk_space(self) -> DiskSpace:
        """The space of the store's file system. Raises OSError."""
        return self._segments.disk_space()

    async def _may_dispatch(self, start: int, end: int) -> bool:
        """Called before [start, end) is dispatched. Returning False postpones dispatch."""
        return True

    def _dispatch_looks_again(self, position: int) -> bool:
        """Whether dispatch, which found no record at `position`, is to read the bytes once more."""
        return False

    # The log, as replication sees it

    def has_segments(self) -> bool:
        """Whether the log has a segment; False for a log that never held a byte, or whose files are gone."""
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
        """Note that every in-sync replica holds the log up to `offset`. A value above the log's end is lowered to the log's
        end. A value below the current confirm offset is ignored, because readable records stay readable until a truncation."""
        offset = min(offset, self._log.max_offset)
        if offset > self._confirm:
            self._confirm = offset
            self._dispatch_loop.wake()
            self._unsaved.set()

    # Retention

    async def oldest_segments(self, count_max: int) -> list[RetainedSegment]:
        """The oldest segments without the last one. Raises OSError."""
        return await self._log.segments_behind_first(count_max)

    def first_message_offset(self) -> int | None:
        """Where the first message begins, confirmed or not. None if the log does not begin with a message. It is read from the
        mapping."""
        return self._log.first_record()

    def first_store_time(self) -> int | None:
        """The store time of the first confirmed record, ms; None without such a record. It is read from the mapping, so do not
        call this often."""
        first = self._log.first_record()
        if first is None or first + RECORD_SIZE_MIN > self._confirm:
            return None
        return store_timestamp(self._log.read(first, RECORD_SIZE_MIN), 0)

    def vouched_offset(self) -> int:
        """The offset below which everything survives a crash. Retention may delete nothing above it."""
        return self.trimming.vouched_offset()

    async def begin_at(self, offset: int, allowed: Callable[[], bool]) -> Trimmed:
        """See Trimming.begin_at. Called with min_offset, it deletes what an earlier round left."""
        return await self.trimming.begin_at(offset, allowed)

    async def follow_log(self) -> Trimmed:
        """Delete files of queues and index that lead to nothing any more. Raises OSError."""
        return await self.trimming.follow()

    # Readers

    def on_arrival(self, callback: Callable[[list[QueueGrew]], None]) -> None:
        """Register a callback. After each step of dispatch that added an entry, it gets the queues that grew."""
        self._dispatch_loop.on_arrival(callback)

    def dispatch(self) -> bool:
        """Run one bounded step of dispatch over mapped segments. Returns True if more can be done at once. The store does this
        by itself whenever the confirm offset moves."""
        return self._dispatch_loop.step()

    @property
    def dispatch_waits(self) -> bool:
        """Whether dispatch waits for a disk that does not return the log: messages are stored but enter no queue."""
        return self._dispatch_loop.unread

    def dispatched_offset(self) -> int:
        return self._dispatcher.position

    def queue_offset_skips(self) -> int:
        """The number of records since the start with an unexpected queue offset, or that no queue can list."""
        return self._dispatcher.skips

    def get(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int, max_bytes: int,
        tag_filter: TagFilter | None = None,
    ) -> GetResult:  # fmt: skip
        """See QueueReader.get. `load` fills the buffers of a cold result."""
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
        """Whether `get` waits for no disk; otherwise `await bring(...)` first. Raises OSError."""
        return self._reader.is_at_hand(topic, queue_id, queue_offset, max_count)

    async def bring(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> None:
        await self._reader.bring(topic, queue_id, queue_offset, max_count)

    async def load(self, result: GetResult) -> None:
        await self._reader.load(result)

    def entries(self, topic: str, queue_id: int, queue_offset: int, count_max: int) -> list[QueueEntry]:
        """The entries of a queue from `queue_offset` on. There are none if the queue does not have that offset."""
        return self._reader.entries(topic, queue_id, queue_offset, count_max)

    async def message_at(self, physical_offset: int, size: int = 0) -> memoryview | None:
        """The confirmed record that starts at `physical_offset` (of `size` bytes, if a queue says so), or None. Its CRCs are
        compared at each call, because a checked record may have become corrupt since, and the caller may make a new record
        with new CRCs from it. Raises RecordDamaged or OSError."""
        content = await self._reader.record_at(physical_offset, self._confirm)
        if content is not None and self._is_as_written(content, physical_offset):
            return content
        doubted = await self._suspect_range(physical_offset, size if content is None else len(content))
        if doubted is None:
            return None
        self.integrity.mark_suspect(*doubted)
        try:
            await self.integrity.check(doubted[0], doubted[1] - doubted[0])
        except LogReplaced:
            raise
        except OffsetOutOfRange:  # retention deleted it meanwhile
            return None
        content = await self._reader.record_at(physical_offset, self._confirm)
        if content is None or self._is_as_written(content, physical_offset):
            return content
        segment = segment_name(self._log.segment_start(physical_offset))
        raise RecordDamaged(segment, physical_offset, "each read returns other bytes")

    async def listed_at(self, physical_offset: int) -> memoryview | None:
        """As `message_at`, for an offset that a client names: None as well if the record's queue does not list it there. A body
        may contain bytes that look like a record of any topic."""
        content = await self.message_at(physical_offset)
        if content is None:
            return None
        record = decode(content, verify_body=False)
        place = record.topic, record.queue_id, record.queue_offset, 1
        await self.bring(*place)
        listed = self.entries(*place)
        return content if listed and listed[0].physical_offset == physical_offset else None

    def _is_as_written(self, content: memoryview, physical_offset: int) -> bool:
        size = len(content)
        verify_record = self._settings.force_verify_prop_crc
        return record_check(content, 0, size, physical_offset, verify_record=verify_record) == size

    async def _suspect_range(self, record_offset: int, size: int) -> tuple[int, int] | None:
        """The range to check again after a record of `size` bytes was read corrupt. None if no record is known to be there.
        Raises OSError."""
        end = record_offset + size
        if size <= 0 or record_offset < self._log.min_offset or end > self._confirm:
            return None
        if end < self._log.max_offset and not await self._log.is_boundary(end):
            return None  # the caller's size is wrong
        return record_offset, end

    async def commits_from(self, position: int, limit: int) -> CommitsFound:
        """Find the half messages that the next few records commit. `position` is where a record (with its framing) begins, and
        `limit` is where a record ends. The next call begins at the result's `end`. Raises OSError or OffsetOutOfRange."""
        segment_end = self._log.segment_start(position) + self.segment_size_bytes
        stop = min(position + SLICE_BYTES, segment_end, limit)
        look = partial(self._commits_in, start=position, segment_end=segment_end, limit=limit)
        return await self._log.examine(position, stop, look)

    def begin_of(self, record_offset: int) -> int:
        """Where the framing of the record at `record_offset` begins in the log."""
        return record_offset

    async def find_by_key(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int, *, by_tag: bool = False
    ) -> list[memoryview]:
        """See KeyLookup.find. Without an index nothing is found."""
        if self._index is None:
            return []
        lookup = KeyLookup(self._reader, self._index)
        begin = self._queues.begin_of(topic)
        return await lookup.find(topic, key, count_max, begin_ms, end_ms, begin, self._confirm, by_tag=by_tag)

    def tags_missing_until(self, topic: str) -> int | None:
        """Up to this store time (ms), a search by tag with `find_by_key` may miss messages of this topic, because index files
        of other versions hold no tags. None if it misses none."""
        if self._index is None or self._index.tags_since.phy <= max(
            self._log.min_offset, self._queues.begin_of(topic)
        ):
            return None
        return self._index.tags_since.store_ms

    @property
    def index_is_filled(self) -> bool:
        """False while records of lost index files are indexed again. `find_by_key` may then miss some."""
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
        return queue.max_queue_offset if queue else self._queues.known_end(topic, queue_id)

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """The offset that a master assigns to the next message. It may be above `max_queue_offset`: dispatch may lag."""
        if self._appender is None:
            return self.max_queue_offset(topic, queue_id)
        return self._appender.next_queue_offset(topic, queue_id)

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queues.find(topic, queue_id)
        return self._queues.first_of(queue) if queue else self._queues.known_end(topic, queue_id)

    def queue_ends_at_least(self, topic: str, queue_id: int, end: int) -> None:
        """Record that this queue has assigned all offsets below `end`. If the log begins after the queue's last message,
        nothing else shows this end."""
        self._queues.ends_at_least(topic, queue_id, end)

    def topic_begins_at(self, topic: str, log_offset: int) -> None:
        """Note that the topic was deleted when the log ended at `log_offset`, so that its queues hide older messages. 0 means
        that it was not deleted."""
        self._queues.topic_begins_at(topic, log_offset)

    def emptied_queues(self) -> list[tuple[str, int, int]]:
        """(topic, queue id, next offset) of each queue that has assigned offsets and holds no message any more."""
        return self._queues.emptied()

    @property
    def tables_noted(self) -> bool:
        """Whether the checkpoint, which `start` read, says that metadata tables were on this log's disk."""
        return self._saved.tables_noted

    async def note_tables(self) -> None:
        """Record in a checkpoint, durably, that tables are durably on this log's disk. A start that finds no tables then knows
        that they are lost. On a full disk, and before `saves_from_now`, a later checkpoint records it. Raises OSError."""
        self._saved.note_tables()
        if self._failure is None:
            await self._save_checkpoint()

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
        """Save the checkpoint. Returns False if the disk has no room; the checkpoint is then saved once there is room. Raises
        OSError."""
        if not self._saves:
            return True
        if await self._checkpoint_write.attempt(self._saved.save_checkpoint()):
            return True
        self._unsaved.set()
        return False
