"""What was decided a moment ago."""

from __future__ import annotations

from raftstore.recentcommits import RecentCommits


def test_nothing_is_decided_at_first() -> None:
    assert RecentCommits().index(5_000) == -1


def test_what_is_decided_now_counts_a_second_later() -> None:
    decided = RecentCommits()
    decided.note(10, 1_000)
    decided.note(20, 3_000)
    assert (decided.index(3_000), decided.index(3_999), decided.index(4_000)) == (10, 10, 20)


def test_of_many_notes_few_are_kept_and_the_last_is_among_them() -> None:
    decided = RecentCommits()
    for number in range(10_000):
        decided.note(number, 1_000 + number)
    assert len(decided._notes) <= 25
    assert 9_999 - 1_050 <= decided.index(10_999) <= 9_999
    assert decided.index(11_999) == 9_999
