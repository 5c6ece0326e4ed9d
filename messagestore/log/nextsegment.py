"""The log's next segment, made before a write waits for it.

Invariant: one task at a time makes the segment, outside the event loop. A failed attempt is repeated even if no send
arrives."""

from __future__ import annotations

import asyncio

from messagestore.log.commitlog import CommitLog
from mqruntime.diskfull import RETRY_S
from mqruntime.tasks import Tasks


class NextSegment:
    def __init__(self, log: CommitLog, tasks: Tasks) -> None:
        self._log = log
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def prepare_soon(self) -> None:
        if self._task is None and not self._stopped and self._log.wants_next():
            self._task = self._tasks.start(self._prepare(), name="store-next-segment")

    def stop(self) -> None:
        """Make no more attempts."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    async def _prepare(self) -> None:
        try:
            while not await self._prepared():  # noqa: ASYNC110 - no event reports room on a disk
                await asyncio.sleep(RETRY_S)
        finally:
            self._task = None

    async def _prepared(self) -> bool:
        try:
            await self._log.prepare_next()
        except OSError:  # the log reports it; a send that needs the segment tries again
            return False
        return True
