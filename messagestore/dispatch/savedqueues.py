"""Consume queues and index on disk, and the checkpoint that vouches for them.

Invariant: the checkpoint's confirm offset never exceeds what is confirmed, flushed, and listed in queues on disk. It is
lowered on disk before anything below it is cut."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from messagestore.checkpoint import (
    FILE,
    INDEX_PARTIAL,
    NOTHING_VOUCHED,
    Checkpoint,
    CheckpointDamaged,
    decode_checkpoint,
    says_tables,
)
from messagestore.dispatch.dispatcher import Dispatcher
from messagestore.dispatch.endcheck import QueueCheck, mark_of
from messagestore.index.table import IndexTable
from messagestore.log.files import LogFiles
from messagestore.queues.ends import FILE as ENDS_FILE
from messagestore.queues.ends import QueueEnds, decode_queue_ends, encode_queue_ends, encode_span
from messagestore.queues.table import QueueTable
from mqruntime.diskfull import DISK_FULL
from mqruntime.log import fields
from mqruntime.smallfiles import SmallFiles

logger = logging.getLogger(__name__)

BOUNDARIES_MAX = 16
ENDS_STEP_BYTES = 8 << 20
ENDS_STEP_FACTOR = 4
"""The file of remembered ends is written again after this many bytes of log for each byte of the file."""
SPANS_IN_A_SLICE = 256


class SavedQueues:
    """Offsets are physical."""

    def __init__(
        self,
        files: SmallFiles,
        log: LogFiles,
        queues: QueueTable,
        index: IndexTable | None,
        dispatcher: Dispatcher,
        confirm_offset: Callable[[], int],
    ) -> None:
        self._files = files
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._confirm_offset = confirm_offset
        self._checkpoint = Checkpoint()
        self._damaged = False  # whether the file on disk is damaged, until a checkpoint is saved
        self._stored = b""
        self.vouched_offset = 0  # the file on disk has at least this confirm offset
        self._synced_end = 0  # entries of records that end at or below this are on disk
        self._boundaries: deque[int] = deque(
            maxlen=BOUNDARIES_MAX
        )  # former values of _synced_end: a record ends at each
        self._ends_lock = asyncio.Lock()
        self._ends_at: int | None = (
            None  # position of the file of remembered ends; None without a reliable file
        )
        self._ends_step = ENDS_STEP_BYTES
        self._cuts = 0

    async def load(self) -> Checkpoint:
        """The checkpoint of the last run, or a default checkpoint if the file is damaged. Raises OSError."""
        data = await self._files.read(FILE)
        try:
            self._checkpoint = decode_checkpoint(data)
        except CheckpointDamaged as damage:
            self._checkpoint, self._damaged = replace(NOTHING_VOUCHED, tables=says_tables(data)), True
            logger.warning(
                "checkpoint damaged, the whole log is read and confirmed again", extra=fields(why=damage)
            )
        if data is not None and not self._checkpoint.ours and self._checkpoint == Checkpoint():
            # the file was erased, or Java only created it: the store may have saved checkpoints before
            self._checkpoint = replace(NOTHING_VOUCHED, tables=self._checkpoint.tables)
        if self._checkpoint.java_wrote:
            logger.info(
                "checkpoint written by a Java broker since, its values are used",
                extra=fields(
                    confirm_offset=self._checkpoint.confirm_phy_offset,
                    logics_offset=self._checkpoint.logics_physical_offset,
                ),
            )
        self.vouched_offset = self._checkpoint.confirm_phy_offset
        return self._checkpoint

    @property
    def tables_noted(self) -> bool:
        """Whether the checkpoint says, or will say, that tables were on this log's disk."""
        return self._checkpoint.tables

    def note_tables(self) -> None:
        """Record tables in the next checkpoint."""
        self._checkpoint.tables = True

    async def _load_ends(self) -> QueueEnds | None:
        """The stored ends of queues; None if there are none, if the checkpoint is not of this implementation, or if Java has
        run since. Raises OSError."""
        ends = decode_queue_ends(await self._files.read(ENDS_FILE))
        if ends is None or self._checkpoint.java_wrote or not (self._checkpoint.ours or self._damaged):
            await self._files.remove(ENDS_FILE)
            return None
        self._ends_at = ends.position
        return ends

    async def check_queues(self, listed_end: int, loaded_limit: int, *, mends: bool = True) -> int:
        """Run QueueCheck, after the queues were loaded. Upstream stores no ends of queues, so the queue files of an upstream
        store are trusted. Raises OSError or QueueUnmendable."""
        check = QueueCheck(self._log, self._queues, self._dispatcher, await self._load_ends(), mends=mends)
        return await check.run(listed_end, loaded_limit, believes=not self._checkpoint.ours)

    async def index_lost(self) -> None:
        """Record durably in the checkpoint that the index is partial, until `sync` has brought all of the index to disk. A
        damaged checkpoint stays as it is, because the next start does not rely on it. Upstream's values stay marked as
        upstream's. Raises OSError."""
        if self._checkpoint.index_msg_timestamp != INDEX_PARTIAL and not self._damaged:
            self._checkpoint.index_msg_timestamp = INDEX_PARTIAL
            self._stored = self._checkpoint.encode(checked=self._checkpoint.ours)
            await self._files.replace(FILE, self._stored)

    async def sync(self) -> None:
        """Sync queues and index, and note their position for the next checkpoint. Raises OSError if the disk failed."""
        position, timestamp = self._dispatcher.position, self._dispatcher.store_timestamp
        self._dispatcher.note_grown()
        await self._queues.sync()
        if self._index is not None:
            await self._index.sync()
            self._checkpoint.index_msg_timestamp = timestamp
        else:
            self._checkpoint.index_msg_timestamp = INDEX_PARTIAL
        self._synced_end = min(
            position, self._dispatcher.position
        )  # a truncation may have happened in between
        if not self._boundaries or self._boundaries[-1] != self._synced_end:
            self._boundaries.append(self._synced_end)
        if position <= self._log.flushed_offset:
            self._checkpoint.physic_msg_timestamp = self._checkpoint.logics_msg_timestamp = timestamp

    async def announce_cut(self, offset: int) -> None:
        """Ensure that the checkpoint on disk guarantees nothing above `offset`, so that a start after a crash misses nothing.
        The caller has lowered the confirm offset before. Raises OSError; then nothing may be cut yet."""
        self._synced_end = min(self._synced_end, offset)
        self._cuts += 1
        while self._boundaries and self._boundaries[-1] > offset:
            self._boundaries.pop()
        if self._checkpoint.confirm_phy_offset > offset:
            await self.save_checkpoint()
        async with self._ends_lock:
            if self._ends_at is not None and self._ends_at > offset:
                await self._files.remove(ENDS_FILE)
                self._ends_at = None

    async def truncate(self, offset: int) -> None:
        """End queues, index and dispatch at `offset`, after `announce_cut`. Raises OSError."""
        # if a full disk refused a record's index entry, the record has a queue entry but is not dispatched
        if max(self._dispatcher.position, self._queues.phy_end()) > offset:
            await self._queues.truncate(offset)
            if self._index is not None:
                await self._index.truncate(offset)
            self._dispatcher.position = min(self._dispatcher.position, offset)

    async def save_checkpoint(self) -> None:
        """Save durably a checkpoint of what `sync` brought to disk. Raises OSError, with the file unchanged."""
        checkpoint, before = self._checkpoint, self._checkpoint.confirm_phy_offset
        end = min(self._confirm_offset(), self._log.flushed_offset, self._synced_end)
        # a slave's log that has just begun may lose its first segment in a power cut, which loses no data
        checkpoint.confirm_phy_offset = end if end > self._log.min_offset else 0
        checkpoint.logics_physical_offset = 0  # Java 5.5 then recovers by time
        if self._index is not None:
            phy, store_ms = self._index.tags_since
            checkpoint.tags_since = None if self._index.asks_files else (phy, store_ms)
        encoded = checkpoint.encode()
        if encoded == self._stored:
            return
        self._stored = b""  # the file's content is unknown until the write has ended
        self.vouched_offset = min(self.vouched_offset, checkpoint.confirm_phy_offset)
        try:
            await self._files.replace(FILE, encoded)
        except OSError:
            # never below the file's value, or the next cut would not be announced
            checkpoint.confirm_phy_offset = max(before, checkpoint.confirm_phy_offset)
            raise
        self._stored, self.vouched_offset = encoded, checkpoint.confirm_phy_offset
        self._damaged = False

    async def ends_known_beyond(self, offset: int) -> bool:
        """Called before the log begins at `offset`: store the ends of all queues unless ends as of a later offset are stored.
        If the messages of a queue are deleted now, the log does not show the queue's end any more. Returns False, so that the
        log does not begin there yet, if the checkpoint guarantees nothing above `offset`, or if the log was cut meanwhile.
        Returns True if the disk is too full to store the ends, because deletions make room. Raises OSError."""
        if self._ends_at is not None and self._ends_at > offset:
            return True
        if not any(offset < each <= self.vouched_offset for each in self._boundaries):
            return False
        had_room = await self.save_ends(at_once=True)
        return not had_room or (self._ends_at is not None and self._ends_at > offset)

    async def save_ends(self, *, at_once: bool = False) -> bool:
        """If it is due, store durably the ends of all queues as of an offset that the checkpoint on disk guarantees. It is due
        if no ends are stored, and after some MiB of log; with `at_once`, after any new record. Other tasks run meanwhile, and a
        cut ends the attempt. On a full disk the old file stays. Returns False only then. Raises OSError."""
        position = max((each for each in self._boundaries if each <= self.vouched_offset), default=0)
        step = 1 if at_once else self._ends_step
        if position <= self._log.min_offset or (
            self._ends_at is not None and position - self._ends_at < step
        ):
            return True
        cuts, spans = self._cuts, []
        mark = await mark_of(self._log, position)
        for key, span in self._queues.spans_at(position):
            spans.append(encode_span(key, span))
            if len(spans) % SPANS_IN_A_SLICE == 0:
                await asyncio.sleep(0)
        async with self._ends_lock:
            if self._cuts != cuts:
                return True
            content = encode_queue_ends(position, mark, len(spans), spans)
            self._ends_step = max(ENDS_STEP_BYTES, ENDS_STEP_FACTOR * len(content))
            try:
                await self._files.replace(ENDS_FILE, content)
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                return False
            self._ends_at = position
        return True
