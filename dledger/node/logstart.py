"""A log whose beginning moves up because its owner needs no more what stands there.

Invariant: calls end in the order in which they came, each once; nothing of the log goes before the snapshot that says so is
durable."""

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
    """Calls that wait for the disk."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: deque[asyncio.Future[None]] = deque()
        refusal = f"files before the beginning of {store.name} cannot be deleted, the next time they may"
        self._deletion = RetriedWrite(logger, refusal)

    def ask(self) -> asyncio.Future[None]:
        """One more is on its way to `perform`."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        return done

    async def perform(self, position: int, note: bytes, begun: Callable[[int], None]) -> None:
        """The oldest call gets what becomes of it. `begun` hears of the entry that the log begins after from then on, before
        files go. Raises OSError, but not that of a full disk; the call alone has that, and LogDamaged, where what tells of the
        new beginning rotted: nothing has changed."""
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
        """One that was given up, or that nobody waits for any more, is passed over."""
        if self._waiting and self._waiting[0] is done:
            self._waiting.popleft()
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def give_up(self) -> None:
        """This member stopped."""
        while self._waiting:
            self._end(self._waiting[0], OutcomeUnknown("this member stopped"))
