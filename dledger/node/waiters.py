"""Callers on this member that wait: for the proof that it still leads, and for the end of a leadership transfer.

Invariants: each wait ends once. A reader's ends with True once a quorum has confirmed the leadership and the state machine has
caught up, with False otherwise; that of a transfer with another leader, with the attempt, or with its time."""

from __future__ import annotations

import asyncio
from collections import deque

from dledger.raft.actions import ReadReady


class Reads:
    """Waiting reads, by the id that the core knows."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[bool]] = {}
        self._ready: deque[ReadReady] = deque()
        """The core has finished these; the state machine may be behind."""
        self._last_id = 0

    def begin(self) -> tuple[int, asyncio.Future[bool]]:
        """A new id, and a future that resolves with whether the leadership was confirmed."""
        self._last_id += 1
        proven: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[self._last_id] = proven
        return self._last_id, proven

    def ready(self, ready: ReadReady) -> None:
        self._ready.append(ready)

    def finish(self, applied_index: int) -> None:
        """Ends reads in the order in which the core finished them, each once its index is applied."""
        while self._ready and (self._ready[0].index is None or self._ready[0].index <= applied_index):
            ready = self._ready.popleft()
            self._ended(ready.read_id, proven=ready.index is not None)

    def _ended(self, read_id: int, *, proven: bool) -> None:
        """A cancelled read is skipped."""
        waiting = self._waiting.get(read_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(proven)

    def forget(self, read_id: int) -> None:
        """Its reader has gone."""
        self._waiting.pop(read_id, None)

    def give_up(self) -> None:
        """This member stops: no leadership is confirmed any more."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(False)


class TransferWaiters:
    """The callers on this member that wait for the end of a transfer."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[bool]] = []

    def wait(self) -> asyncio.Future[bool]:
        """A future for `ended`."""
        ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(ended)
        return ended

    async def ended(self, waiting: asyncio.Future[bool], timeout_ms: int) -> bool:
        """Whether another member leads; False at the latest after `timeout_ms`."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await waiting
        except TimeoutError:
            return False

    def end(self, *, another_leads: bool) -> None:
        waiting, self._waiting = self._waiting, []
        for ended in waiting:
            if not ended.done():
                ended.set_result(another_leads)
