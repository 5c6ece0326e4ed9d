"""Consume queues and index on disk, and the checkpoint that vouches for them.

Invariant: the checkpoint's confirm offset never exceeds what is confirmed, flushed, and listed in queues on disk; it is
lowered on disk before anything below it is cut."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from messagestore.checkpoint import (
    FILE,
    INDEX_PARTIAL,
    NOTHING_VOUCHED,
    Checkpoint,
    CheckpointDamaged,
    decode_checkpoint,
)
from messagestore.index.table import IndexTable
from messagestore.log.files import LogFiles
from messagestore.queues.dispatcher import Dispatcher
from messagestore.queues.table import QueueTable
from mqruntime.log import fields
from mqruntime.smallfiles import SmallFiles

logger = logging.getLogger(__name__)


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
        self._damaged = False  # the file on disk is, and stays until a checkpoint is saved
        self._stored = b""
        self.vouched_offset = 0  # the confirm offset that the file on disk has at least
        self._synced_end = 0  # entries of records that end at or below this are on disk

    async def load(self) -> Checkpoint:
        """What the last run left; of a damaged file nothing. OSError."""
        try:
            self._checkpoint = decode_checkpoint(await self._files.read(FILE))
        except CheckpointDamaged as damage:
            self._checkpoint, self._damaged = replace(NOTHING_VOUCHED), True
            logger.warning(
                "checkpoint damaged, the whole log is read and confirmed again", extra=fields(why=damage)
            )
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

    async def index_lost(self) -> None:
        """The checkpoint says that the index is partial, durably on return, until `sync` brought all of it to disk. A damaged
        one stays: the next start vouches for nothing in it either. Values of upstream stay upstream's. OSError."""
        if self._checkpoint.index_msg_timestamp != INDEX_PARTIAL and not self._damaged:
            self._checkpoint.index_msg_timestamp = INDEX_PARTIAL
            self._stored = self._checkpoint.encode(checked=self._checkpoint.ours)
            await self._files.replace(FILE, self._stored)

    async def sync(self) -> None:
        """Queues and index to disk, and what the next checkpoint will say of them. OSError: the disk failed."""
        position, timestamp = self._dispatcher.position, self._dispatcher.store_timestamp
        self._dispatcher.note_grown()
        await self._queues.sync()
        if self._index is not None:
            await self._index.sync()
            self._checkpoint.index_msg_timestamp = timestamp
        else:
            self._checkpoint.index_msg_timestamp = INDEX_PARTIAL
        self._synced_end = min(position, self._dispatcher.position)  # a truncation may have come between
        if position <= self._log.flushed_offset:
            self._checkpoint.physic_msg_timestamp = self._checkpoint.logics_msg_timestamp = timestamp

    async def announce_cut(self, offset: int) -> None:
        """No checkpoint on disk vouches for anything above `offset`, so that a crash finds nothing lost below it; the confirm
        offset is lowered already. OSError: nothing may be cut yet."""
        self._synced_end = min(self._synced_end, offset)
        if self._checkpoint.confirm_phy_offset > offset:
            await self.save_checkpoint()

    async def truncate(self, offset: int) -> None:
        """Queues, index and dispatch end at `offset`; the cut was announced. OSError."""
        # a record whose index entry a full disk refused is in its queue and to be dispatched again
        if max(self._dispatcher.position, self._queues.phy_end()) > offset:
            await self._queues.truncate(offset)
            if self._index is not None:
                await self._index.truncate(offset)
            self._dispatcher.position = min(self._dispatcher.position, offset)

    async def save_checkpoint(self) -> None:
        """Durable on return, of what `sync` brought to disk. OSError leaves the file as it was."""
        checkpoint, before = self._checkpoint, self._checkpoint.confirm_phy_offset
        end = min(self._confirm_offset(), self._log.flushed_offset, self._synced_end)
        # a slave's log that has just begun at a later segment may lose that with the power, and has lost nothing then
        checkpoint.confirm_phy_offset = end if end > self._log.min_offset else 0
        checkpoint.logics_physical_offset = 0  # Java 5.5 then recovers by time
        encoded = checkpoint.encode()
        if encoded == self._stored:
            return
        self._stored = b""  # unknown until the write has ended
        self.vouched_offset = min(self.vouched_offset, checkpoint.confirm_phy_offset)
        try:
            await self._files.replace(FILE, encoded)
        except OSError:
            # never below what the file says, or the next cut would not be announced
            checkpoint.confirm_phy_offset = max(before, checkpoint.confirm_phy_offset)
            raise
        self._stored, self.vouched_offset = encoded, checkpoint.confirm_phy_offset
        self._damaged = False
