"""Whose turn it is: commands on one broker set come one after the other, those on different sets beside each other.

Invariant: a set has one holder at most. Of those who wait the controller itself comes first, then brokers that live, then
anybody else; of one rank each connection has its turn, however many commands another one has sent, and its own come in the
order of asking. Nothing is kept of a set that nobody holds or waits for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple


class TurnNotCome(Exception):
    """The turn did not come in time."""


class Rank(IntEnum):
    """Who comes first."""

    CONTROLLER = 0
    BROKER = 1
    ANYBODY = 2


class Asker(NamedTuple):
    """Who wants a command carried out: over which connection."""

    rank: Rank = Rank.ANYBODY
    connection: int = 0


ITSELF, SOMEBODY = Asker(Rank.CONTROLLER), Asker()


def order_of(asker: Asker) -> int:
    """The lowest comes first."""
    return asker.rank


@dataclass(slots=True)
class _Turn:
    users: int = 0
    is_held: bool = False
    waiting: dict[Asker, deque[asyncio.Future[None]]] = field(default_factory=dict)
    """In the order in which their turns come within a rank."""

    async def acquire(self, asker: Asker) -> None:
        if not self.is_held:
            self.is_held = True
            return
        come = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(asker, deque()).append(come)
        try:
            await come
        except asyncio.CancelledError:
            if not come.cancelled():
                self.release()  # it came at this very moment
            raise

    def release(self) -> None:
        while self.waiting:
            asker = min(self.waiting, key=order_of)
            queue = self.waiting.pop(asker)
            come = queue.popleft()
            if queue:
                self.waiting[asker] = queue  # behind the others
            if not come.done():
                come.set_result(None)
                return
        self.is_held = False


class Turns:
    """By broker name."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}
        self._waiting_of: dict[Asker, int] = {}
        self.waiting = 0
        """Who has asked and not got a turn yet, over all sets."""

    def waits(self, asker: Asker) -> bool:
        """Whether a command of `asker` does."""
        return asker in self._waiting_of

    @asynccontextmanager
    async def of(self, broker_name: str, end: float, asker: Asker = SOMEBODY) -> AsyncIterator[None]:
        """Holds the turn of the set. Raises TurnNotCome if it does not come before the loop's time `end`."""
        turn = self._turns.setdefault(broker_name, _Turn())
        turn.users += 1
        try:
            await self._acquire(turn, end, asker)
            try:
                yield
            finally:
                turn.release()
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[broker_name]

    async def _acquire(self, turn: _Turn, end: float, asker: Asker) -> None:
        self.waiting += 1
        self._waiting_of[asker] = self._waiting_of.get(asker, 0) + 1
        try:
            async with asyncio.timeout_at(end):
                await turn.acquire(asker)
        except TimeoutError:
            raise TurnNotCome from None
        finally:
            self.waiting -= 1
            self._waiting_of[asker] -= 1
            if not self._waiting_of[asker]:
                del self._waiting_of[asker]
