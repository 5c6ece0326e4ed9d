"""Limit of the rate at which the log is sent to a slave for which no acknowledgement waits: it is catching up, not in the
SyncStateSet, or a learner.

Invariant: while there is a limit, at most the limit and one burst are sent in any interval. Heartbeats and notices are not
counted. A slave for which acknowledgements wait is never limited. Pure."""

from __future__ import annotations

from collections.abc import Callable

from mqruntime.core import NEVER_MS

BURST_MS = 250
FRAMES_A_SECOND = 10
"""At least this number of frames is sent, so a small limit leads to small frames and not to long pauses."""


class Pace:
    """The limit of one link. `limit()` returns bytes a second (maxHaTransferByteInSecond), None for no limit now; it is read at
    each call."""

    def __init__(self, limit: Callable[[], int | None]) -> None:
        self._limit = limit
        self._room = 0  # thousandths of a byte
        self._counted_ms = 0
        self.due_ms = NEVER_MS
        """Time at which a delayed frame may be sent."""

    def allowed(self, size: int, now_ms: int) -> int:
        """The part of `size` bytes that may be sent now; this part is counted as sent. 0 if no byte may be sent before
        `due_ms`."""
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
