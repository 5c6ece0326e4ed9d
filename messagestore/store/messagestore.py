"""The store of a broker whose log is a plain commit log, copied from the master to slaves. Upstream: DefaultMessageStore.

Invariant: the confirm offset is lowered only by a truncation, and the log is cut only at a record boundary."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial

from messagestore.checkpoint import Checkpoint
from messagestore.errors import OffsetOutOfRange, RecordDamaged, StoreCorrupted, StoreFailed
from messagestore.log.appender import Appender
from messagestore.log.commitlog import FOLDER, CommitLog
from messagestore.log.nextsegment import NextSegment
from messagestore.messages import RecoveryReport
from messagestore.store.beginning import LogStartFile
from messagestore.store.brokerstore import BrokerStore
from messagestore.store.recovery import Recovery
from messagestore.store.settings import FlushDiskType, StoreSettings
from messagestore.store.tail import LogTail
from mqruntime.diskfull import DISK_FULL
from mqruntime.runtime import Runtime


class MessageStore(BrokerStore):
    """Also the log as replication sees it."""

    _log: CommitLog

    def __init__(
        self, runtime: Runtime, settings: StoreSettings, *, on_fatal: Callable[[BaseException], None]
    ) -> None:
        log = CommitLog(
            runtime.segments.subdirectory(FOLDER),
            settings.mapped_file_size_commit_log,
            hot_segments=settings.hot_segments,
        )
        super().__init__(runtime, settings, log, on_fatal=on_fatal)
        self._next_segment = NextSegment(log, self._tasks)
        self._beginning = LogStartFile(runtime.files)
        self._unflushed = asyncio.Event()
        self._flush_began_ms: int | None = None
        self._tail = LogTail(log, self._queues, self._dispatcher, self._dispatch_loop.held)

    # Life

    async def _recovered(self, checkpoint: Checkpoint, *, clean: bool) -> RecoveryReport:
        recovery = Recovery(
            self._log, self._queues, self._dispatcher, checkpoint, self._index,
            verify_body=self._settings.check_crc_on_recover, verify_record=self._settings.force_verify_prop_crc,
            open_index=partial(self._index_start(checkpoint).found, trusted=clean),
            check_queues=self._saved.check_queues,
            begins=await self._beginning.load(),
        )  # fmt: skip
        return await recovery.run(clean=clean)

    async def _log_moves_up(self, offset: int) -> None:
        await self._beginning.moves_up(offset)

    def _begin_tasks(self) -> None:
        self._tasks.start(self._flush_loop(), name="store-flush")
        super()._begin_tasks()

    def _appends_end(self) -> None:
        self._next_segment.stop()

    async def _flush_all(self) -> None:
        await self._log.flush()

    def _has_unlisted(self) -> bool:
        return self._dispatcher.position < self._log.max_offset

    async def _close_log(self) -> None:
        self._log.close()

    # Role

    async def become_master(self) -> None:
        """End the log at a record boundary, find the next queue offsets and accept appends. Each record that is not dispatched
        yet is read, while other tasks run. A repeated call is harmless. Raises OSError and what `truncate` raises."""
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
        """Reject appends from now on; the log grows through write_view and advance."""
        self._appender = None
        self._dispatcher.known.clear()

    # The master's writes

    def _appended(self) -> None:
        self._grown()
        super()._appended()

    def _nothing_appended(self) -> None:
        self._next_segment.prepare_soon()  # the disk may have refused the needed segment

    def _grown(self) -> None:
        self._unflushed.set()
        self._next_segment.prepare_soon()

    def sync_lasts_ms(self) -> int:
        began_ms = self._flush_began_ms
        return 0 if began_ms is None else self._clock.monotonic_ms() - began_ms

    async def flush(self) -> int:
        """Sync all bytes appended before the call; return flushed_offset. Raises StoreFailed if the disk fails or has
        failed."""
        if self._failure is not None:
            raise StoreFailed(self._failure)
        try:
            flushed = await self._log.flush()
        except OSError as error:
            raise self._failed(error) from error
        self._unsaved.set()
        return flushed

    async def synced_to(self, end: int) -> None:
        if self.flushed_offset() < end:
            try:
                await self.flush()
            except StoreFailed as error:
                raise OSError(errno.EIO, str(error)) from error

    async def sync_again(self, offset: int) -> None:
        """See CommitLog.sync_again. Raises StoreFailed."""
        try:
            await self._log.sync_again(offset)
        except OSError as error:
            raise self._failed(error) from error

    @property
    def sync_failed(self) -> bool:
        return self._log.sync_failed

    # The log, as replication sees it

    async def read_cold(self, offset: int, size_max: int) -> bytes:
        return await self._log.read_cold(offset, size_max)

    def is_cold(self, offset: int) -> bool:
        return self._log.is_cold(offset)

    def at_hand(self, offset: int, size: int) -> memoryview | None:
        """The result of `read` if the bytes are in memory and checked; else None. See Integrity."""
        return self._log.at_hand(offset, size) if self.integrity.is_checked(offset, size) else None

    async def check(self, offset: int, size: int) -> str | None:
        """Read and check the unchecked bytes. Returns the error if a record is damaged or deleted, else None. Raises
        OSError."""
        try:
            await self.integrity.check(offset, size)
        except (RecordDamaged, OffsetOutOfRange) as damage:
            return str(damage)
        return None

    async def repair(self, offset: int, content: bytes) -> bool:
        """Replace the damaged record at `offset` by `content`, another replica's record. Returns False if `content` is not
        intact, does not fit, or ends above the confirm offset, and if the record is not damaged any more. Raises OSError or
        StoreFailed."""
        if offset + len(content) > self._confirm or not await self.integrity.fits(offset, content):
            return False
        try:
            written = await self._log.rewrite(offset, content, lambda: offset in self.integrity.damages)
        except OSError as error:
            raise self._failed(error) from error
        if written:
            self.integrity.repaired(offset, len(content))
        return written

    async def is_boundary(self, offset: int) -> bool:
        """Whether a record, or the end of a segment's records, begins at `offset`, which is within the log. Raises OSError."""
        return await self._log.is_boundary(offset)

    async def last_record(self) -> tuple[int, bytes] | None:
        """(offset, bytes) of the last whole intact record; None without any. Raises StoreFailed."""
        end = self._log.max_offset
        while end > self._log.min_offset:
            try:
                end = await self._tail.boundary_at_or_below(end - 1, self._confirm)
                content = await self._reader.record_at(end, self._log.max_offset)
            except RecordDamaged:
                continue  # `check` has logged the damage
            except (OSError, StoreCorrupted) as error:
                raise self._failed(error) from error
            if content is not None:
                return end, bytes(content)
        return None

    def write_view(self, offset: int, size_max: int) -> memoryview:
        """The buffer for received log bytes, see CommitLog.write_view. Raises StoreFailed after a failure, or OSError
        (ENOSPC)."""
        assert self._appender is None, "a master's log is not written by a slave's link"
        if self._failure is not None:
            raise StoreFailed(self._failure)
        view = self._log.write_view(offset, size_max)
        if self._dispatcher.position < self._log.min_offset:  # the empty log has just begun
            self._dispatcher.position = self._dispatcher.log_min = self._confirm = self._log.min_offset
        return view

    async def end_segment(self) -> None:
        """End the log's last segment durably with a BLANK. Later bytes begin the next segment. Raises StoreFailed, or OSError
        (ENOSPC) with the log unchanged."""
        self._log.end_segment()
        await self.flush()

    async def begin_empty_at(self, offset: int) -> None:
        """Record durably that the empty log is about to begin at `offset`. Raises OSError."""
        await self._log.drop_empty(but_at=offset)
        await self._beginning.note(offset, offset)

    def advance(self, end: int) -> None:
        self._log.advance(end)
        self._grown()

    async def truncate(self, offset: int) -> int:
        """End log, queues and confirm offset durably with the last whole record that ends at or below `offset`, and return
        that end. Called with max_offset, this erases bytes that an ended connection left above the log's end; call it before a
        new connection fills the log. Raises OSError if the disk is full; then nothing is cut, and the call can be tried again.
        Raises StoreFailed."""
        self._cuts += 1
        try:
            return await self._truncate(offset)
        finally:
            self._cuts -= 1

    async def _truncate(self, offset: int) -> int:
        try:
            offset = await self._tail.boundary_at_or_below(offset, self._confirm)
            await self._log.prepare_cut(offset)
        except OSError as error:  # the log reports the error
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
        self.integrity.cut(offset)
        self._dispatcher.known.clear()
        try:
            await self._saved.truncate(offset)
            self._tail.cut(offset)
            await self._log.truncate(offset)
        except OSError as error:
            raise self._failed(error) from error
        return offset

    async def reset_beginning(self) -> None:
        """Let a log that ends at 0 begin at any segment's start again. Raises StoreFailed."""
        try:
            await self._log.drop_empty()
        except OSError as error:
            raise self._failed(error) from error

    async def confirm_whole_records(self) -> None:
        """Lower the confirm offset to the end of a record. A record that is confirmed only in part was not acknowledged, and
        the next leader may be missing the rest of it. Call this while nothing else moves the confirm offset. Raises
        StoreFailed."""
        try:
            self._confirm = await self._tail.boundary_at_or_below(self._confirm, self._confirm)
        except (OSError, StoreCorrupted) as error:
            raise self._failed(error) from error

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
