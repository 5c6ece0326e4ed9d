"""What a pair's master knows of its slaves."""

from __future__ import annotations

from ha.classic.acks import PairAcks

NOTHING_WAITS = 1 << 63


def test_what_one_slave_holds_counts_and_goes_on_counting_when_it_has_gone() -> None:
    acks = PairAcks()
    for slave, end in (("a", 100), ("b", 50)):
        acks.came(slave, end, end)
    assert acks.held_end(NOTHING_WAITS) == 100
    acks.reported("b", 120)
    assert acks.held_end(90) == 120
    acks.gone("b")
    assert acks.held_end(NOTHING_WAITS) == 120
    assert "a" in acks and "b" not in acks


def test_a_slave_without_a_log_does_not_answer_for_what_is_below_its_first_file() -> None:
    acks = PairAcks()
    acks.came("new", 0, 1000)
    acks.reported("new", 1500)
    assert acks.held_end(waiting_end=900) == 0
    assert acks.held_end(waiting_end=1100) == 1500


def test_nor_does_one_that_may_be_the_same_after_it_came_again() -> None:
    acks = PairAcks()
    acks.came("old", 700, 700)
    acks.came("new", 0, 1000)
    acks.gone("new")
    acks.came("again", 1200, 1200)
    acks.reported("old", 800)
    assert acks.held_end(waiting_end=900) == 800
    assert acks.held_end(waiting_end=1100) == 1200


def test_only_who_is_connected_and_close_is_in_reach() -> None:
    acks = PairAcks()
    assert acks.in_step(1000, 256) == []
    acks.came("far", 744, 744)
    acks.came("near", 745, 745)
    assert acks.in_step(1000, 256) == ["near"]
    acks.gone("near")
    acks.gone("never came")
    assert acks.in_step(1000, 256) == []
