"""Whose turn it is: commands on one broker set come one after the other, those on different sets beside each other.

Invariant: a set has one holder at most; who waits gets the turn in the order of asking. Nothing is kept of a set that nobody
holds or waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


class TurnNotCome(Exception):
    """The turn did not come in time."""


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Turns:
    """By broker name."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}
        self.waiting = 0
        """Who has asked and not got a turn yet, over all sets."""

    @asynccontextmanager
    async def of(self, broker_name: str, end: float) -> AsyncIterator[None]:
        """Holds the turn of the set. Raises TurnNotCome if it does not come before the loop's time `end`."""
        turn = self._turns.setdefault(broker_name, _Turn())
        turn.users += 1
        try:
            await self._acquire(turn.lock, end)
            try:
                yield
            finally:
                turn.lock.release()
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[broker_name]

    async def _acquire(self, lock: asyncio.Lock, end: float) -> None:
        self.waiting += 1
        try:
            async with asyncio.timeout_at(end):
                await lock.acquire()
        except TimeoutError:
            raise TurnNotCome from None
        finally:
            self.waiting -= 1
