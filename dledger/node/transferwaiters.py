"""Who waits for how a hand-over of the leadership ends.

Invariant: each wait ends once, with another leader, with the attempt, or with its time."""

from __future__ import annotations

import asyncio


class TransferWaiters:
    """On one member."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[bool]] = []

    def wait(self) -> asyncio.Future[bool]:
        """To be given to `ended`."""
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
