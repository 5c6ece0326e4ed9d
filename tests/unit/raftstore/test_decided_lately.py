"""The index that was committed a moment ago."""

from __future__ import annotations

from raftstore.recentcommits import RecentCommits


def test_a_new_recent_commits_has_no_index() -> None:
    assert RecentCommits().index(5_000) == -1


def test_a_commit_index_is_returned_one_second_later() -> None:
    recent = RecentCommits()
    recent.note(10, 1_000)
    recent.note(20, 3_000)
    assert (recent.index(3_000), recent.index(3_999), recent.index(4_000)) == (10, 10, 20)


def test_few_of_many_notes_are_kept_and_the_last_is_one_of_them() -> None:
    recent = RecentCommits()
    for number in range(10_000):
        recent.note(number, 1_000 + number)
    assert len(recent._notes) <= 25
    assert 9_999 - 1_050 <= recent.index(10_999) <= 9_999
    assert recent.index(11_999) == 9_999
