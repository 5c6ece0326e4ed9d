"""How much log goes to one slave that nobody waits for: one that catches up, a stranger to the set, a learner.

Invariant: while a limit is in force no more than the limit and one burst passes in any stretch of time; heartbeats and notices
are not counted, and a slave that acknowledgements wait for is never held back. Pure."""

from __future__ import annotations

from collections.abc import Callable

from mqruntime.core import NEVER_MS

BURST_MS = 250
FRAMES_A_SECOND = 10
"""So many at least: a small limit makes small frames, not long silences."""


class Pace:
    """Of one link. `limit`: bytes a second (maxHaTransferByteInSecond), asked anew each time; None: none is in force, or
    not for this slave now."""

    def __init__(self, limit: Callable[[], int | None]) -> None:
        self._limit = limit
        self._room = 0  # thousandths of a byte
        self._counted_ms = 0
        self.due_ms = NEVER_MS
        """When a frame that had to wait may go."""

    def allowed(self, size: int, now_ms: int) -> int:
        """How many of `size` bytes go now; they are counted. 0: none before `due_ms`."""
        self.due_ms = NEVER_MS
        limit = self._limit()
        if limit is None:
            return size
        wanted = min(size, max(1, limit // FRAMES_A_SECOND))
        burst = max(limit * BURST_MS, wanted * 1000)
        self._room = min(burst, self._room + limit * (now_ms - self._counted_ms))
        self._counted_ms = now_ms
        lacking = wanted * 1000 - self._room
        if lacking > 0:
            self.due_ms = now_ms - (-lacking // limit)
            return 0
        size = min(size, self._room // 1000)
        self._room -= size * 1000
        return size
