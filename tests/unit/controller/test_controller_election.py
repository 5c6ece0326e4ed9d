from __future__ import annotations

from controller.electpolicy import LiveReport, elect


def report(epoch: int = 1, max_offset: int = 0, election_priority: int = 2**31 - 1) -> LiveReport:
    return LiveReport(epoch, max_offset, election_priority)


def test_a_live_master_stays_even_if_others_have_longer_logs() -> None:
    assert elect([1, 2], {1: report(), 2: report(9, 9, 0)}, old_master=1) == 1


def test_only_live_candidates_count() -> None:
    assert elect([1, 2], {2: report(), 3: report(9)}, old_master=1) == 2
    assert elect([1, 2], {3: report()}, old_master=1) is None


def test_a_designated_broker_is_elected_or_none_is() -> None:
    assert elect([1, 2], {1: report(), 2: report()}, old_master=1, designated=2) == 2
    assert elect([1, 2], {1: report()}, old_master=1, designated=2) is None
    assert elect([1, 2], {1: report(), 2: report()}, old_master=1, designated=-1) is None


def test_candidates_are_ordered_by_epoch_length_priority_and_id() -> None:
    assert elect([1, 2], {1: report(2, 100), 2: report(3, 50)}, old_master=None) == 2
    assert elect([1, 2], {1: report(2, 100, 0), 2: report(2, 101)}, old_master=None) == 2
    assert elect([1, 2], {1: report(2, 100, 5), 2: report(2, 100, 4)}, old_master=None) == 2
    assert elect([2, 1], {1: report(), 2: report()}, old_master=None) == 1


def test_the_longer_log_wins_by_more_than_two_gibibytes() -> None:
    for gap in (2**31, 2**32, 2**33 + 5):
        assert elect([1, 2], {1: report(1, 10), 2: report(1, 10 + gap)}, old_master=None) == 2
