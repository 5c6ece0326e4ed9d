"""Failures that go on side by side are told as seldom as one."""

from __future__ import annotations

from mqruntime.repeatedfailure import REMIND_MS
from mqruntime.repeatedfailures import KEPT_MAX, RepeatedFailures


def test_each_is_told_when_it_begins_and_again_while_it_lasts() -> None:
    failures, told = RepeatedFailures(), list[tuple[str, int]]()
    for now_ms in range(0, 2 * REMIND_MS, 1_000):
        told += [(what, now_ms) for what in ("a", "b") if failures.failed(what, now_ms)]
    assert told == [("a", 0), ("b", 0), ("a", REMIND_MS), ("b", REMIND_MS)]
    failures.recovered("a")
    failures.recovered("c")
    assert failures.failed("a", 2 * REMIND_MS - 1) and not failures.failed("b", 2 * REMIND_MS - 1)


def test_of_many_no_more_are_told_than_are_known() -> None:
    failures = RepeatedFailures()
    for _ in range(3):
        assert sum(failures.failed(what, 0) for what in range(10 * KEPT_MAX)) in (KEPT_MAX, 0)
    assert sum(failures.failed(what, REMIND_MS) for what in range(10 * KEPT_MAX)) == KEPT_MAX
