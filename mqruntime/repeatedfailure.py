"""Rate limit for logging a failure: logged when it begins, now and then while it lasts, and when it ends.

Invariant: a lasting failure is logged at most once in `remind_ms`, and again as long as it lasts. Pure."""

from __future__ import annotations

REMIND_MS = 30_000


class RepeatedFailure:
    """One retried operation; `now_ms` is monotonic."""

    def __init__(self, remind_ms: int = REMIND_MS) -> None:
        self._remind_ms = remind_ms
        self._what: object = None
        self._since_ms = 0
        self._logged_ms = 0

    def failed(self, what: object, now_ms: int) -> bool:
        """The operation failed, for the reason `what`; returns whether to log that now."""
        if self._what is None:
            self._since_ms = now_ms
        elif what == self._what and now_ms - self._logged_ms < self._remind_ms:
            return False
        self._what, self._logged_ms = what, now_ms
        return True

    def recovered(self, now_ms: int) -> int | None:
        """The operation succeeded; returns how long it failed, in ms, or None if it had not."""
        if self._what is None:
            return None
        self._what = None
        return now_ms - self._since_ms
