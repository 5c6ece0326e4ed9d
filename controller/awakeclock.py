"""A monotonic clock that stops while this controller cannot run: the host is frozen, a signal stopped the process, or the event
loop is blocked.

Invariant: the clock never goes back, and is never faster than the real clock. A pause counts as `TICK_MS`, however long it was.
So a broker is never declared silent because of heartbeats that this process could not receive."""

from __future__ import annotations

import asyncio
import logging

from mqruntime.clock import Clock
from mqruntime.log import fields

logger = logging.getLogger(__name__)

TICK_MS = 250
LATE_MS_MAX = 250
"""A reading that is late by at most this time is an ordinary delay of a busy machine, and no pause."""
TOLD_FROM_MS = 1_000


class AwakeClock:
    """The clock `clock`, whose monotonic time leaves out the pauses of this process. Pauses before `run` starts are not left
    out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read_ms = clock.monotonic_ms()
        self._slept_ms = 0
        self._running = False

    def now_ms(self) -> int:
        """The wall clock, pauses included."""
        return self._clock.now_ms()

    def monotonic_ms(self) -> int:
        """Time in which this process was awake."""
        now_ms = self._clock.monotonic_ms()
        step_ms = now_ms - self._read_ms
        if self._running and step_ms > TICK_MS + LATE_MS_MAX:
            self._slept(step_ms - TICK_MS)
        self._read_ms = now_ms
        return now_ms - self._slept_ms

    def work_us(self) -> int:
        return self._clock.work_us()

    async def run(self) -> None:
        """Read the clock often enough to detect pauses, until cancelled."""
        self._read_ms = self._clock.monotonic_ms()
        self._running = True
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            self.monotonic_ms()

    def _slept(self, slept_ms: int) -> None:
        self._slept_ms += slept_ms
        if slept_ms >= TOLD_FROM_MS:
            logger.warning(
                "this controller stood still",
                extra=fields(slept_ms=slept_ms, hint="the pause counts against no broker"),
            )
