"""What a member has heard of the leader that it follows.

Invariant: who was heard just now is not doubted. Pure."""

from __future__ import annotations

OTHERS_NOTICE_MS = 20
"""A leader's end is seen by all its followers, but not in the same moment."""


class LeaderSign:
    """Of one member, whoever leads it; a sign of life is fresh for `fresh_ms`."""

    def __init__(self, fresh_ms: int) -> None:
        self._fresh_ms = fresh_ms
        self._heard_ms: int | None = None
        self.doubted = False
        """Its connection ended, and it was asked whether it leads still."""

    def heard(self, now_ms: int) -> None:
        self._heard_ms = now_ms
        self.doubted = False

    def gone(self, now_ms: int, rank: int, step_ms: int) -> int:
        """It cannot be reached, or leads no more. When the member whose turn is the `rank`-th, from 0, may stand."""
        self._heard_ms = None
        self.doubted = False
        return now_ms + OTHERS_NOTICE_MS + rank * step_ms

    def is_fresh(self, now_ms: int) -> bool:
        return self._heard_ms is not None and now_ms - self._heard_ms < self._fresh_ms
