"""When the core wants to hear of the time next.

Invariant: one call is arranged at most, for the earliest time that was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mqruntime.clock import Clock


class Alarm:
    """`ring` is called once for each time that it was set for, and is to set it again."""

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0

    def set(self, due_ms: int) -> None:
        """Monotonic milliseconds. A later time than that for which it is set changes nothing."""
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        # readings are cut to whole ms: not a hair too early
        delay_ms = max(0, due_ms - self._clock.monotonic_ms()) + 1
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._rings)
        self._due_ms = due_ms

    def _rings(self) -> None:
        self._timer = None
        self._ring()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
