"""Connections take turns in having their requests handled, so that no connection blocks the others.

Invariant: in one round each connection is handled for at most SLICE_US, and all connections for at most ROUND_US. Only the
request, or batch of sends, that is being handled when the time ends may exceed it. At most one round begins in a turn of the
event loop. Waiting connections get their turns in the order in which they began to wait. One-way requests count like other
requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from mqruntime.clock import Clock

SLICE_US = 2_000
"""Time of one connection in a round: some hundred small requests."""
ROUND_US = 8_000
"""Time of all connections of a server in a round. It is short enough for timers, heartbeats and HA links, which share the
loop."""
STARTS_MAX = 8
"""A connection may begin this many handlers that answer later in a round: their cost is unknown before they run."""


class WaitingConnection(Protocol):
    """A connection whose requests wait."""

    def go_on(self) -> None:
        """Called when the connection's turn has come."""


class Turns:
    """The rounds of one server or client. `call_soon(callback)` runs the callback in the next turn of the loop; by default
    it is that of the running loop."""

    def __init__(
        self,
        clock: Clock,
        *,
        slice_us: int = SLICE_US,
        round_us: int = ROUND_US,
        call_soon: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self.number = 0
        """The number of this round."""
        self.spent_us = 0
        """Time used in this round by all connections."""
        self.slice_us = slice_us
        self.round_us = round_us
        self.clock = clock
        self._waiting: deque[WaitingConnection] = deque()
        self._is_due = False
        self._call_soon = call_soon

    def share(self) -> TurnShare:
        """The share of one more connection."""
        return TurnShare(self)

    def wait(self, connection: WaitingConnection) -> None:
        """Call `connection.go_on()` in a later turn of the loop, after those that wait already."""
        self._waiting.append(connection)
        if not self._is_due:
            self._next_round()

    def _next_round(self) -> None:
        self._is_due = True
        (self._call_soon or asyncio.get_running_loop().call_soon)(self._round)

    def _round(self) -> None:
        self._is_due = False
        self.number += 1
        self.spent_us = 0
        waiting = self._waiting
        for _ in range(len(waiting)):
            waiting.popleft().go_on()
            if self.spent_us >= self.round_us:
                break
        if waiting and not self._is_due:
            self._next_round()


class TurnShare:
    """How much of the present round one connection has used."""

    __slots__ = ("_begun_us", "_clock", "_number", "_spent_us", "_started", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._clock = turns.clock
        self._number = self._spent_us = self._started = self._begun_us = 0

    def begins(self) -> bool:
        """Whether the connection may be handled now. If so, the time until `ends` counts as used."""
        turns = self._turns
        if self._number != turns.number:
            self._number, self._spent_us, self._started = turns.number, 0, 0
        if self._spent_us >= turns.slice_us or turns.spent_us >= turns.round_us:
            return False
        self._begun_us = self._clock.work_us()
        return True

    def started(self) -> None:
        """A handler that answers later has begun."""
        self._started += 1

    @property
    def is_used(self) -> bool:
        """Whether the connection being handled has used its share."""
        took_us = self._clock.work_us() - self._begun_us
        turns = self._turns
        return (
            self._spent_us + took_us >= turns.slice_us
            or self._started >= STARTS_MAX
            or turns.spent_us + took_us >= turns.round_us
        )

    def ends(self) -> bool:
        """Stop handling; returns whether the connection has some of its share left."""
        took_us = self._clock.work_us() - self._begun_us
        turns = self._turns
        self._spent_us += took_us
        turns.spent_us += took_us
        return (
            self._spent_us < turns.slice_us and self._started < STARTS_MAX and turns.spent_us < turns.round_us
        )
