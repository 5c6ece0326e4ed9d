"""Readings of time.

Invariant: only `now_ms` may jump; `monotonic_ms` never goes back and is the one that every timeout and every
liveness decision is counted in. `work_us` measures how long work takes, and nothing else."""

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
    """Of the day, 0 to 23, at this wall time."""
    return now_ms // 3_600_000 % 24


def local_hour(now_ms: int) -> int:
    """The same where the machine stands."""
    return time.localtime(now_ms / 1000).tm_hour


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def work_us(self) -> int:
        return time.monotonic_ns() // 1_000
