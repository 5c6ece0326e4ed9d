"""A repeated failure is logged at a bounded rate."""

from __future__ import annotations

from mqruntime.repeatedfailure import RepeatedFailure


def test_a_lasting_failure_is_logged_at_first_and_then_at_each_reminder() -> None:
    failure = RepeatedFailure(remind_ms=1000)
    logged_at_ms = [now_ms for now_ms in range(0, 3000, 100) if failure.failed("refused", now_ms)]
    assert logged_at_ms == [0, 1000, 2000]


def test_another_failure_reason_is_logged_at_once() -> None:
    failure = RepeatedFailure()
    assert [failure.failed(why, 0) for why in ("refused", "refused", "no leader", "no leader")] == [
        1,
        0,
        1,
        0,
    ]


def test_the_recovery_is_logged_once_with_the_duration() -> None:
    failure = RepeatedFailure()
    assert failure.recovered(5) is None
    failure.failed("refused", 10)
    failure.failed("no leader", 20)
    assert (failure.recovered(40), failure.recovered(50)) == (30, None)
    assert failure.failed("refused", 60)
