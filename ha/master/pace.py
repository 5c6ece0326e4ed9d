"""Rate limit of log to a slave that no ack waits for: one that is catching up, is not in the set, or is a learner.

Invariant: while a limit is in force, no interval passes more than the limit and one burst. Heartbeats and notices are
not counted, and a slave that acks wait for is never limited. Pure."""

from __future__ import annotations

from collections.abc import Callable

from mqruntime.core import NEVER_MS

BURST_MS = 250
FRAMES_A_SECOND = 10
"""At least this many: a small limit makes small frames, not long silences."""


class Pace:
    """State of one link. `limit`: bytes a second (maxHaTransferByteInSecond), read at each call; None: no limit for
    this slave now."""

    def __init__(self, limit: Callable[[], int | None]) -> None:
        self._limit = limit
        self._room = 0  # thousandths of a byte
        self._counted_ms = 0
        self.due_ms = NEVER_MS
        """Time at which a delayed frame may be sent."""

    def allowed(self, size: int, now_ms: int) -> int:
        """The part of `size` bytes that may be sent now, which is counted. 0: none before `due_ms`."""
        self.due_ms = NEVER_MS
        limit = self._limit()
        if limit is None:
            return size
        wanted = min(size, max(1, limit // FRAMES_A_SECOND))
        burst = max(limit * BURST_MS, wanted * 1000)
        self._room = min(burst, self._room + limit * (now_ms - self._counted_ms))
        self._counted_ms = now_ms
        missing = wanted * 1000 - self._room
        if missing > 0:
            self.due_ms = now_ms - (-missing // limit)
            return 0
        size = min(size, self._room // 1000)
        self._room -= size * 1000
        return size
