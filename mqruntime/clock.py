"""Readings of time.

Invariant: only `now_ms` may jump; `monotonic_ms` never goes back and is used for every timeout and every liveness decision.
`work_us` is used only to measure how long work takes."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where a process reads the time."""

    def now_ms(self) -> int:
        """Wall clock, ms since 1970-01-01 UTC: what is stored in records and shown to people. May jump."""
        ...

    def monotonic_ms(self) -> int:
        """The event loop's clock in ms; counts from an arbitrary start."""
        ...

    def work_us(self) -> int:
        """Monotonic microseconds from an arbitrary start: the difference of two is how long the work between them took."""
        ...


def utc_hour(now_ms: int) -> int:
    """The hour of the day, 0 to 23, at this wall time."""
    return now_ms // 3_600_000 % 24


def local_hour(now_ms: int) -> int:
    """The hour in the machine's time zone."""
    return time.localtime(now_ms / 1000).tm_hour


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def work_us(self) -> int:
        return time.monotonic_ns() // 1_000
