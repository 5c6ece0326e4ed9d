"""Lasting failures of several kinds are each logged as seldom as a single one."""

from __future__ import annotations

from mqruntime.repeatedfailure import REMIND_MS
from mqruntime.repeatedfailures import KEPT_MAX, RepeatedFailures


def test_each_failure_is_logged_when_it_begins_and_repeated_while_it_lasts() -> None:
    failures, logged = RepeatedFailures(), list[tuple[str, int]]()
    for now_ms in range(0, 2 * REMIND_MS, 1_000):
        logged += [(what, now_ms) for what in ("a", "b") if failures.failed(what, now_ms)]
    assert logged == [("a", 0), ("b", 0), ("a", REMIND_MS), ("b", REMIND_MS)]
    failures.recovered("a")
    failures.recovered("c")
    assert failures.failed("a", 2 * REMIND_MS - 1) and not failures.failed("b", 2 * REMIND_MS - 1)


def test_the_number_of_logged_failures_is_bounded() -> None:
    failures = RepeatedFailures()
    for _ in range(3):
        assert sum(failures.failed(what, 0) for what in range(10 * KEPT_MAX)) in (KEPT_MAX, 0)
    assert sum(failures.failed(what, REMIND_MS) for what in range(10 * KEPT_MAX)) == KEPT_MAX
