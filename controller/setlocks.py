"""Locks by broker set: commands on one set run one after the other, commands on different sets run concurrently.

Invariant: a set's lock has at most one holder. Commands of the controller itself come first, then those of live brokers, then
all others. Requesters of equal rank take turns by connection, however many commands a connection has sent. Commands of one
connection keep their order. No data is kept for a lock that is neither held nor waited for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple


class TurnNotCome(Exception):
    """The lock was not granted in time."""


class Rank(IntEnum):
    """The ranks of requesters, first to last."""

    CONTROLLER = 0
    BROKER = 1
    ANYBODY = 2


class CommandSource(NamedTuple):
    """The rank of the requester of a command, and the requester's connection."""

    rank: Rank = Rank.ANYBODY
    connection: int = 0


ITSELF, SOMEBODY = CommandSource(Rank.CONTROLLER), CommandSource()


def order_of(asker: CommandSource) -> int:
    """The sort key of a requester; the lowest comes first."""
    return asker.rank


@dataclass(slots=True)
class _Turn:
    users: int = 0
    is_held: bool = False
    waiting: dict[CommandSource, deque[asyncio.Future[None]]] = field(default_factory=dict)
    """The waiting requesters, within a rank in the order of their turns."""

    async def acquire(self, asker: CommandSource) -> None:
        if not self.is_held:
            self.is_held = True
            return
        come = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(asker, deque()).append(come)
        try:
            await come
        except asyncio.CancelledError:
            if not come.cancelled():
                self.release()  # the lock was granted at this moment
            raise

    def release(self) -> None:
        while self.waiting:
            asker = min(self.waiting, key=order_of)
            queue = self.waiting.pop(asker)
            come = queue.popleft()
            if queue:
                self.waiting[asker] = queue  # behind the other connections
            if not come.done():
                come.set_result(None)
                return
        self.is_held = False


class BrokerTurns:
    """The locks, by broker name."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}
        self._waiting_of: dict[CommandSource, int] = {}
        self.waiting = 0
        """The number of waiting commands, over all sets."""

    def waits(self, asker: CommandSource) -> bool:
        """Whether a command of `asker` is waiting."""
        return asker in self._waiting_of

    @asynccontextmanager
    async def of(self, broker_name: str, end: float, asker: CommandSource = SOMEBODY) -> AsyncIterator[None]:
        """Hold the lock of the set. Raises TurnNotCome if it is not granted before the loop's time `end`."""
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

    async def _acquire(self, turn: _Turn, end: float, asker: CommandSource) -> None:
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
