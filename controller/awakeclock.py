"""A clock that stands still while this controller does: frozen with its host, stopped by a signal, or held by work of its own.

Invariant: it never goes back and never runs ahead of the clock beneath it. Of a stretch in which nobody could read it, it
counts `TICK_MS`, however long that was; so what nobody could hear meanwhile is silence of nobody's."""

from __future__ import annotations

import asyncio
import logging

from mqruntime.clock import Clock
from mqruntime.log import fields

logger = logging.getLogger(__name__)

TICK_MS = 250
LATE_MS_MAX = 250
"""A reading that is this much later than a tick is due is an ordinary delay of a busy machine."""
TOLD_FROM_MS = 1_000


class AwakeClock:
    """`clock` without what this process slept through, once `run` runs; until then it is `clock`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read_ms = clock.monotonic_ms()
        self._slept_ms = 0
        self._running = False

    def now_ms(self) -> int:
        """The wall clock, as it is."""
        return self._clock.now_ms()

    def monotonic_ms(self) -> int:
        """Counts the time that this process was awake for."""
        now_ms = self._clock.monotonic_ms()
        step_ms = now_ms - self._read_ms
        if self._running and step_ms > TICK_MS + LATE_MS_MAX:
            self._slept(step_ms - TICK_MS)
        self._read_ms = now_ms
        return now_ms - self._slept_ms

    def work_us(self) -> int:
        return self._clock.work_us()

    async def run(self) -> None:
        """Read it often enough to know when nobody could, until cancelled."""
        self._read_ms = self._clock.monotonic_ms()
        self._running = True
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            self.monotonic_ms()

    def _slept(self, slept_ms: int) -> None:
        self._slept_ms += slept_ms
        if slept_ms >= TOLD_FROM_MS:
            logger.warning(
                "this controller stood still: no broker is held to have been silent meanwhile",
                extra=fields(slept_ms=slept_ms),
            )
