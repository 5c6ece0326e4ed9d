"""Two readings of time.

Invariant: only `now_ms` may jump; `monotonic_ms` never goes back and is the one that every timeout and every
liveness decision is counted in."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where a process reads the time; both readings are whole milliseconds."""

    def now_ms(self) -> int:
        """Wall clock, ms since 1970-01-01 UTC: what is stored in records and shown to people. May jump."""
        ...

    def monotonic_ms(self) -> int:
        """The event loop's clock in ms; counts from an arbitrary start."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
