"""What a member has heard of the leader that it follows.

Invariant: who was heard just now is not doubted. Pure."""

from __future__ import annotations


class LeaderSign:
    """Of one member, whoever leads it."""

    def __init__(self) -> None:
        self._heard_ms: int | None = None
        self.doubted = False
        """Its connection ended, and it was asked whether it leads still."""

    def heard(self, now_ms: int) -> None:
        self._heard_ms = now_ms
        self.doubted = False

    def gone(self) -> None:
        """It cannot be reached, or leads no more."""
        self._heard_ms = None
        self.doubted = False

    def is_fresh(self, now_ms: int, within_ms: int) -> bool:
        return self._heard_ms is not None and now_ms - self._heard_ms < within_ms
