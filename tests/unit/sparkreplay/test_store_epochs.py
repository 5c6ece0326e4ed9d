"""Epochs show whether a log is the one that was read: a truncation changes them, retention does not."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochfile.history import EpochHistory
from sparkreplay.errors import EpochChanged
from sparkreplay.store.epochs import Epochs, common_part, epochs_within
from sparkreplay.store.files import LocalFiles
from sparkreplay.store.snapshot import StoreSnapshot, require_unchanged

STEPS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 50)), min_size=1, max_size=8)


def history_of(steps: list[tuple[int, int]]) -> Epochs:
    numbers = accumulate(step for step, _ in steps)
    starts = accumulate((length for _, length in steps[:-1]), initial=0)
    return tuple(zip(numbers, starts, strict=True))


def epoch_of(epochs: Epochs, offset: int) -> int:
    return max(epoch for epoch, start in epochs if start <= offset)


def still_the_same(before: Epochs, now: Epochs, bound: int) -> bool:
    store = StoreSnapshot(LocalFiles("/store"), "broker-a", (), before, bound)
    try:
        require_unchanged(store, store.root, now, bound)
    except EpochChanged:
        return False
    return True


@given(STEPS, st.integers(1, 400), st.data())
def test_retention_below_the_bound_and_elections_above_it_are_no_change(
    steps: list[tuple[int, int]], bound: int, data: st.DataObject
) -> None:
    before = history_of(steps)
    low = data.draw(st.integers(0, bound - 1))
    later = (before[-1][0] + 1, max(bound, before[-1][1] + 1))
    now = tuple(EpochHistory(before).truncate_prefix(low))
    assert still_the_same(before, now, bound)
    assert still_the_same(before, (*now, later), bound)


def test_a_log_whose_first_known_epoch_begins_above_the_bound_has_not_changed() -> None:
    known = ((2, 500),)
    assert still_the_same(known, known, 400)
    assert still_the_same(known, ((2, 500), (3, 900)), 400)
    assert not still_the_same(known, ((1, 300), (2, 500)), 400)


@given(STEPS, st.integers(1, 400), st.data())
def test_a_truncation_below_the_bound_is_always_a_change(
    steps: list[tuple[int, int]], bound: int, data: st.DataObject
) -> None:
    before = history_of(steps)
    cut = data.draw(st.integers(0, bound - 1))
    now = EpochHistory(before).truncate_suffix(cut).entries
    assert not still_the_same(before, (*now, (before[-1][0] + 1, cut)), bound)


@given(STEPS, STEPS, st.integers(0, 400))
def test_two_histories_agree_exactly_where_each_byte_has_the_same_epoch(
    steps: list[tuple[int, int]], others: list[tuple[int, int]], end: int
) -> None:
    one, other = history_of(steps), history_of(others)
    ours, theirs = common_part(one, other, end)
    assert (ours == theirs) == all(epoch_of(one, offset) == epoch_of(other, offset) for offset in range(end))


@pytest.mark.parametrize(
    ("start", "end", "within"),
    [
        (0, 900, ((1, 0), (3, 500), (4, 800))),
        (0, 800, ((1, 0), (3, 500))),
        (499, 501, ((1, 499), (3, 500))),
        (600, 700, ((3, 600),)),
        (900, 900, ()),
        (900, 100, ()),
    ],
)
def test_the_epochs_of_a_part_of_the_log_begin_in_it(start: int, end: int, within: Epochs) -> None:
    assert epochs_within(((1, 0), (3, 500), (4, 800)), start, end) == within
