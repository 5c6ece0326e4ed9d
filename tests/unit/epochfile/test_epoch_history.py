"""The epoch history: order, replacement of empty epochs, consistent point, truncation at either end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochfile.entry import EpochEntry
from epochfile.history import NO_CONSISTENT_POINT, EpochHistory, EpochOutOfOrder


def test_an_empty_history_has_epoch_minus_one() -> None:
    history = EpochHistory()
    assert history.last_epoch() == -1
    assert history.last() is None
    assert history.entry_at(0) is None


@pytest.mark.parametrize(
    "entries",
    [
        [(2, 0), (1, 10)],
        [(1, 0), (1, 10)],
        [(1, 10), (2, 10)],
        [(1, 10), (2, 9)],
        [(-1, 0)],
        [(1, -5)],
        [(2**31, 0)],
        [(1, 2**63)],
        [(1, 0), (2**31, 9)],
    ],
)
def test_a_history_whose_columns_do_not_both_increase_is_refused(entries: list[tuple[int, int]]) -> None:
    with pytest.raises(EpochOutOfOrder):
        EpochHistory(entries)


def test_an_epoch_that_wrote_nothing_is_replaced_when_the_next_starts_at_the_same_offset_r1() -> None:
    history = EpochHistory([(1, 0)]).append((2, 1580)).append((3, 1580))
    assert history.entries == (EpochEntry(1, 0), EpochEntry(3, 1580))


def test_the_first_epoch_is_replaced_too_when_it_wrote_nothing() -> None:
    assert EpochHistory([(1, 0)]).append((2, 0)).entries == (EpochEntry(2, 0),)


def test_appending_the_same_entry_again_changes_nothing() -> None:
    history = EpochHistory([(1, 0), (2, 1580)])
    assert history.append((2, 1580)) is history


@pytest.mark.parametrize("new", [(2, 2000), (1, 2000), (1, 0)])
def test_an_epoch_that_is_not_above_the_last_is_refused(new: tuple[int, int]) -> None:
    with pytest.raises(EpochOutOfOrder, match="epoch 2 at 1580"):
        EpochHistory([(1, 0), (2, 1580)]).append(new)


def test_an_offset_lies_in_the_epoch_that_started_at_or_before_it() -> None:
    history = EpochHistory([(1, 100), (2, 300), (3, 500)])
    assert history.entry_at(99) is None
    assert history.entry_at(350) == (2, 300)
    assert history.entry_at(500) == (3, 500)
    assert history.entry_at(10**9) == (3, 500)
    assert history.entry_of(2) == (2, 300)
    assert history.entry_of(4) is None


def test_an_epoch_ends_where_the_next_starts_but_never_beyond_the_log() -> None:
    history = EpochHistory([(1, 100), (2, 300), (3, 500)])
    assert history.epoch_end(1, 700) == 300
    assert history.epoch_end(1, 200) == 200
    assert history.epoch_end(3, 700) == 700
    with pytest.raises(KeyError):
        history.epoch_end(4, 700)


@pytest.mark.parametrize(
    ("own", "own_end", "other", "other_end", "point"),
    [
        pytest.param([(1, 0)], 900, [(1, 0)], 1000, 900, id="1 equal, slave behind"),
        pytest.param([(1, 0)], 1500, [(1, 0), (2, 1000)], 1200, 1000, id="2 extra bytes in the old epoch"),
        pytest.param([(1, 0), (2, 1000)], 1500, [(1, 0), (3, 1000)], 1800, 1000, id="3 foreign epoch"),
        pytest.param([(1, 0)], 700, [(1, 0)], 600, 600, id="4 slave ahead in the same epoch"),
        pytest.param(
            [(1, 0), (2, 300), (3, 500)],
            700,
            [(1, 0), (2, 300), (3, 500), (4, 800)],
            900,
            700,
            id="5 master newer",
        ),
        pytest.param(
            [(1, 0), (2, 300), (3, 500)], 700, [(1, 0), (2, 300), (3, 450)], 900, 450, id="6 start differs"
        ),
        pytest.param(
            [(1, 100), (2, 300)], 400, [(1, 200), (2, 500)], 900, NO_CONSISTENT_POINT, id="7 nothing common"
        ),
        pytest.param([], 0, [(1, 0)], 1000, NO_CONSISTENT_POINT, id="8 own history empty"),
        pytest.param([(1, 0)], 0, [(1, 0)], 1000, 0, id="10 entry but empty log"),
        pytest.param([(1, 0), (2, 900)], 1600, [(2, 900)], 3000, 1600, id="11 master's prefix trimmed"),
        pytest.param(
            [(1, 0)], 500, [(5, 4000)], 5000, NO_CONSISTENT_POINT, id="12 master trimmed everything known"
        ),
        pytest.param([(1, 0), (2, 1000)], 1400, [(1, 0), (2, 1000)], 1000, 1000, id="13 master shorter"),
        pytest.param(
            [(1, 0), (2, 1000)], 900, [(1, 0), (2, 1000)], 1500, 900, id="14 epoch file ahead of the log"
        ),
    ],
)
def test_the_consistent_point_of_two_logs(
    own: list[tuple[int, int]], own_end: int, other: list[tuple[int, int]], other_end: int, point: int
) -> None:
    assert EpochHistory(own).find_consistent_point(EpochHistory(other), own_end, other_end) == point


def test_truncating_the_suffix_drops_entries_that_start_at_or_after_the_cut() -> None:
    history = EpochHistory([(1, 100), (2, 300), (3, 500)])
    assert history.truncate_suffix(300).entries == ((1, 100),)
    assert history.truncate_suffix(301).entries == ((1, 100), (2, 300))
    assert history.truncate_suffix(0).entries == ()


def test_truncating_the_prefix_keeps_the_epoch_that_is_still_written_r33() -> None:
    history = EpochHistory([(1, 100), (2, 300), (3, 500)])
    assert history.truncate_prefix(300).entries == ((2, 300), (3, 500))
    assert history.truncate_prefix(299).entries == history.entries
    assert history.truncate_prefix(10**9).entries == ((3, 500),)
    assert EpochHistory().truncate_prefix(5).entries == ()


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 50)), max_size=20))
def test_after_any_append_both_columns_strictly_increase(steps: list[tuple[int, int]]) -> None:
    history, epoch = EpochHistory(), 0
    for rise, start in steps:
        epoch += rise
        history = history.append((epoch, start))  # the constructor checks the order
        assert history.last() == (epoch, start)
