"""What readers in order did is judged without knowing how locks work."""

from __future__ import annotations

from localcluster.order import Handled, judge_order


def told(*handled: tuple[str, int, int]) -> list[Handled]:
    return [Handled(*each) for each in handled]


def test_tenures_that_follow_each_other_hold_and_what_comes_again_is_counted() -> None:
    verdict = judge_order(
        told(("q0", 0, 1), ("q1", 0, 2), ("q0", 1, 1), ("q0", 1, 3), ("q0", 2, 3), ("q1", 1, 2)),
        {"q0": 3, "q1": 2},
    )
    assert verdict.holds
    assert (verdict.handled, verdict.again, verdict.tenures) == (6, 1, 3)


def test_a_reader_that_goes_on_behind_another_had_no_lock() -> None:
    verdict = judge_order(told(("q0", 0, 1), ("q0", 1, 2), ("q0", 1, 1)), {"q0": 2})
    assert verdict.at_once == ["q0@1 was handled in tenure 1, when 2 had begun"]


def test_a_message_in_front_of_one_that_nobody_handled_is_out_of_order() -> None:
    verdict = judge_order(told(("q0", 0, 1), ("q0", 2, 2), ("q0", 1, 2)), {"q0": 3})
    assert verdict.out_of_order == [
        "q0@2 was handled when 1 was not",
        "q0@1 was handled behind 2 in tenure 2",
    ]


def test_what_nobody_handled_is_told() -> None:
    assert judge_order(told(("q0", 0, 1)), {"q0": 2, "q1": 1}).never == [
        "q0 was handled up to 1, and ends at 2",
        "q1 was handled up to 0, and ends at 1",
    ]
