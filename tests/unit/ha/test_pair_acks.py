"""The acknowledged offsets that a pair's master records."""

from __future__ import annotations

from ha.classic.acks import PairAcks

NOTHING_WAITS = 1 << 63


def test_the_acknowledged_end_of_a_slave_counts_after_it_disconnected() -> None:
    acks = PairAcks()
    for slave, end in (("a", 100), ("b", 50)):
        acks.came(slave, end, end)
    assert acks.held_end(NOTHING_WAITS) == 100
    acks.reported("b", 120)
    assert acks.held_end(90) == 120
    acks.gone("b")
    assert acks.held_end(NOTHING_WAITS) == 120
    assert "a" in acks and "b" not in acks


def test_an_empty_slave_does_not_acknowledge_below_its_first_file() -> None:
    acks = PairAcks()
    acks.came("new", 0, 1000)
    acks.reported("new", 1500)
    assert acks.held_end(waiting_end=900) == 0
    assert acks.held_end(waiting_end=1100) == 1500


def test_a_reconnected_slave_does_not_acknowledge_below_its_first_file() -> None:
    acks = PairAcks()
    acks.came("old", 700, 700)
    acks.came("new", 0, 1000)
    acks.gone("new")
    acks.came("again", 1200, 1200)
    acks.reported("old", 800)
    assert acks.held_end(waiting_end=900) == 800
    assert acks.held_end(waiting_end=1100) == 1200


def test_only_a_connected_slave_close_to_the_end_is_in_step() -> None:
    acks = PairAcks()
    assert acks.in_step(1000, 256) == []
    acks.came("far", 744, 744)
    acks.came("near", 745, 745)
    assert acks.in_step(1000, 256) == ["near"]
    acks.gone("near")
    acks.gone("never came")
    assert acks.in_step(1000, 256) == []
