"""Retention's deletions: segments of the log, then the files of queues and index that lead into them.

Invariant: only what is confirmed and durable according to the checkpoint on disk is deleted. The order of deletions ensures
that the store opens after a crash: segments are deleted from the oldest on, each durably, and then the files of queues and
index that lead to nothing any more. Files that a crash leaves are ignored and deleted in the next round. Readers keep their
views."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from messagestore.dispatch.dispatcher import Dispatcher
from messagestore.dispatch.savedqueues import SavedQueues
from messagestore.index.table import IndexTable
from messagestore.log.files import LogFiles
from messagestore.queues.table import QueueTable
from messagestore.scrub.soundness import Integrity
from mqruntime.segments import SegmentFile
from mqruntime.tasks import Tasks


class Trimmed(NamedTuple):
    """Numbers of deleted files."""

    segments: int
    queue_files: int
    index_files: int


class Trimming:
    """`tasks` wait for the last readers of deleted files. While `cutting()` is true, the log's end is being cut, and its
    beginning does not move. `moves_up(offset)` durably records where the log is about to begin."""

    def __init__(
        self,
        log: LogFiles,
        queues: QueueTable,
        index: IndexTable | None,
        dispatcher: Dispatcher,
        integrity: Integrity,
        saved: SavedQueues,
        tasks: Tasks,
        cutting: Callable[[], bool],
        moves_up: Callable[[int], Awaitable[None]],
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._integrity = integrity
        self._saved = saved
        self._tasks = tasks
        self._cutting = cutting
        self._moves_up = moves_up
        self.deleted_segments = 0
        """Totals since the start."""
        self._followed: int | None = None  # the log's beginning when queues and index last followed

    def vouched_offset(self) -> int:
        """Everything below this offset is confirmed, even after a crash, because log and queue entries are on disk."""
        return min(self._saved.vouched_offset, self._dispatcher.position)

    async def begin_at(self, offset: int, allowed: Callable[[], bool]) -> Trimmed:
        """Begin the log at `offset`, a segment's start, if that is still `allowed` at a moment when no other task can
        interfere. Queues and index follow. After OSError the next round does the rest."""
        if offset > self._log.min_offset and await self._may_begin_at(offset, allowed):
            try:
                await self._queues.raise_min(offset)
                await self._moves_up(offset)
                if await self._may_begin_at(offset, allowed):
                    self._log.begin_at(offset)
                    self._dispatcher.log_min = offset
                    self._integrity.begin_at(offset)
            finally:
                if self._log.min_offset < offset:  # a hold was set, or the disk is full
                    await self._queues.lower_min(self._log.min_offset)
        segments = await self._log.delete_former()
        self.deleted_segments += len(segments)
        self._release(segments)
        if self._followed == self._log.min_offset:
            return Trimmed(len(segments), 0, 0)
        return (await self.follow())._replace(segments=len(segments))

    async def _may_begin_at(self, offset: int, allowed: Callable[[], bool]) -> bool:
        known = await self._saved.ends_known_beyond(offset)
        within = self._log.min_offset < offset < self._log.max_offset  # the log may have been cut
        return known and within and not self._cutting() and offset <= self.vouched_offset() and allowed()

    async def follow(self) -> Trimmed:
        """Delete files of queues and index that lead to nothing any more. Raises OSError."""
        log_min = self._log.min_offset
        queue_files = await self._queues.delete_former()
        index_files = [] if self._index is None else await self._index.delete_below(log_min)
        self._release(index_files)
        self._followed = log_min
        return Trimmed(0, queue_files, len(index_files))

    def _release(self, files: list[SegmentFile]) -> None:
        for file in files:
            self._tasks.start(file.release(), name=f"store-release {file.name}")
