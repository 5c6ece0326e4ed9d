"""Failures that go on, several at a time: each is told when it begins, and now and then while it lasts.

Invariant: one is told at most once in `remind_ms`, and of `kept_max` it is known when: where more fail, others are told only as
those are forgotten. Pure."""

from __future__ import annotations

from collections.abc import Hashable

from mqruntime.repeatedfailure import REMIND_MS

KEPT_MAX = 256


class RepeatedFailures:
    """Of work on several things, each tried again and again; `now_ms` is monotonic."""

    def __init__(self, remind_ms: int = REMIND_MS, kept_max: int = KEPT_MAX) -> None:
        self._remind_ms = remind_ms
        self._kept_max = kept_max
        self._told_ms: dict[Hashable, int] = {}  # the one told last comes last

    def failed(self, what: Hashable, now_ms: int) -> bool:
        """It failed once more, for `what`; True when that is to be told now."""
        told_ms = self._told_ms.get(what)
        if told_ms is not None and now_ms - told_ms < self._remind_ms:
            return False
        if told_ms is None and len(self._told_ms) >= self._kept_max:
            oldest, told_ms = next(iter(self._told_ms.items()))
            if now_ms - told_ms < self._remind_ms:
                return False
            del self._told_ms[oldest]
        self._told_ms.pop(what, None)
        self._told_ms[what] = now_ms
        return True

    def recovered(self, what: Hashable) -> None:
        """`what` went well."""
        self._told_ms.pop(what, None)
