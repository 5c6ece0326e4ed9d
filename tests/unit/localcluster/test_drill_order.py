"""Ordered consumption is checked without knowledge of how locks work."""

from __future__ import annotations

from localcluster.order import Handled, judge_order


def handled_by(*handled: tuple[str, int, int]) -> list[Handled]:
    return [Handled(*each) for each in handled]


def test_consecutive_tenures_hold_and_redelivered_messages_are_counted() -> None:
    verdict = judge_order(
        handled_by(("q0", 0, 1), ("q1", 0, 2), ("q0", 1, 1), ("q0", 1, 3), ("q0", 2, 3), ("q1", 1, 2)),
        {"q0": 3, "q1": 2},
    )
    assert verdict.holds
    assert (verdict.handled, verdict.again, verdict.tenures) == (6, 1, 3)


def test_a_reader_that_continues_after_the_next_tenure_began_is_a_fault() -> None:
    verdict = judge_order(handled_by(("q0", 0, 1), ("q0", 1, 2), ("q0", 1, 1)), {"q0": 2})
    assert verdict.at_once == ["q0@1 was handled in tenure 1, when 2 had begun"]


def test_a_message_handled_before_an_earlier_one_is_out_of_order() -> None:
    verdict = judge_order(handled_by(("q0", 0, 1), ("q0", 2, 2), ("q0", 1, 2)), {"q0": 3})
    assert verdict.out_of_order == [
        "q0@2 was handled when 1 was not",
        "q0@1 was handled behind 2 in tenure 2",
    ]


def test_unhandled_messages_are_reported() -> None:
    assert judge_order(handled_by(("q0", 0, 1)), {"q0": 2, "q1": 1}).never == [
        "q0 was handled up to 1, and ends at 2",
        "q1 was handled up to 0, and ends at 1",
    ]
