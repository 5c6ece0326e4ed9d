"""The start of the log, which moves up when the log's owner does not need the oldest entries any more.

Invariant: each call of `advance_log_start` ends once, and calls end in the order in which they came. No file is deleted before
the snapshot with the new start of the log is durable."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from dledger.raft.errors import LogDamaged, OutcomeUnknown
from dledger.storage.store import Store
from mqruntime.diskfull import DISK_FULL, RetriedWrite

logger = logging.getLogger(__name__)


class LogStart:
    """The calls of `advance_log_start` that wait for the disk."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: deque[asyncio.Future[None]] = deque()
        refusal = f"files before the start of {store.name} cannot be deleted, the next attempt may do it"
        self._deletion = RetriedWrite(logger, refusal)

    def ask(self) -> asyncio.Future[None]:
        """Adds a call; `perform` ends the call later."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        return done

    async def perform(self, position: int, note: bytes, begun: Callable[[int], None]) -> None:
        """Performs and ends the oldest call. `begun` is called with the last index before the new start, before files are
        deleted. A full disk, or LogDamaged for a corrupt entry at the new start, ends only the call, and nothing has changed.

        Raises: any other OSError."""
        done = self._waiting[0]
        try:
            await self._begin(position, note, begun)
        except (OSError, LogDamaged) as error:
            self._end(done, error)
            if isinstance(error, OSError) and error.errno not in DISK_FULL:
                raise
        else:
            self._end(done, None)

    async def _begin(self, position: int, note: bytes, begun: Callable[[int], None]) -> None:
        log = self._store.log
        assert log is not None
        if position > log.begin.position:
            await self._store.begin_at(position, note)
            begun(log.begin.index)
            await self._deletion.attempt(self._store.reclaim())

    def _end(self, done: asyncio.Future[None], error: Exception | None) -> None:
        """Ends a call, unless it was given up or cancelled."""
        if self._waiting and self._waiting[0] is done:
            self._waiting.popleft()
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def give_up(self) -> None:
        """Ends all waiting calls, because this member stopped."""
        while self._waiting:
            self._end(self._waiting[0], OutcomeUnknown("this member stopped"))
