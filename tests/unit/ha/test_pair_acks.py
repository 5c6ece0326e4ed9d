"""What a pair's master knows of its slaves."""

from __future__ import annotations

from ha.classic.acks import PairAcks


def test_what_one_slave_holds_counts_and_goes_on_counting_when_it_has_gone() -> None:
    acks = PairAcks()
    assert acks.reported("a", 100) and not acks.reported("b", 50) and acks.reported("b", 120)
    acks.gone("b")
    assert acks.held_end == 120
    assert "a" in acks and "b" not in acks


def test_only_who_is_connected_and_close_is_in_reach() -> None:
    acks = PairAcks()
    assert acks.in_step(1000, 256) == []
    acks.reported("far", 744)
    acks.reported("near", 745)
    assert acks.in_step(1000, 256) == ["near"]
    acks.gone("near")
    acks.gone("never came")
    assert acks.in_step(1000, 256) == []
