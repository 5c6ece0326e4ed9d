"""A failure that goes on: told when it begins, now and then while it lasts, and when it is over.

Invariant: what repeats itself is told at most once in `remind_ms`, and never only once and then no more. Pure."""

from __future__ import annotations

REMIND_MS = 30_000


class RepeatedFailure:
    """One piece of work that is tried again and again; `now_ms` is monotonic."""

    def __init__(self, remind_ms: int = REMIND_MS) -> None:
        self._remind_ms = remind_ms
        self._what: object = None
        self._since_ms = 0
        self._told_ms = 0

    def failed(self, what: object, now_ms: int) -> bool:
        """It failed once more, for `what`; True when that is to be told now."""
        if self._what is None:
            self._since_ms = now_ms
        elif what == self._what and now_ms - self._told_ms < self._remind_ms:
            return False
        self._what, self._told_ms = what, now_ms
        return True

    def recovered(self, now_ms: int) -> int | None:
        """It went well; how long it did not, in ms, or None where nothing was wrong."""
        if self._what is None:
            return None
        self._what = None
        return now_ms - self._since_ms
