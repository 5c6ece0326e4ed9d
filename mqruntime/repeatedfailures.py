"""Rate limit for logging failures of several operations: each is logged when it begins, and now and then while it lasts.

Invariant: each is logged at most once in `remind_ms`. Of `kept_max` the time is remembered: beyond that, others are logged
only as those are forgotten. Pure."""

from __future__ import annotations

from collections.abc import Hashable

from mqruntime.repeatedfailure import REMIND_MS

KEPT_MAX = 256


class RepeatedFailures:
    """Several operations, each retried; `now_ms` is monotonic."""

    def __init__(self, remind_ms: int = REMIND_MS, kept_max: int = KEPT_MAX) -> None:
        self._remind_ms = remind_ms
        self._kept_max = kept_max
        self._logged_ms: dict[Hashable, int] = {}  # the one logged last comes last

    def failed(self, what: Hashable, now_ms: int) -> bool:
        """The operation `what` failed; returns whether to log that now."""
        reported_ms = self._logged_ms.get(what)
        if reported_ms is not None and now_ms - reported_ms < self._remind_ms:
            return False
        if reported_ms is None and len(self._logged_ms) >= self._kept_max:
            oldest, reported_ms = next(iter(self._logged_ms.items()))
            if now_ms - reported_ms < self._remind_ms:
                return False
            del self._logged_ms[oldest]
        self._logged_ms.pop(what, None)
        self._logged_ms[what] = now_ms
        return True

    def recovered(self, what: Hashable) -> None:
        """The operation `what` succeeded."""
        self._logged_ms.pop(what, None)
