"""The log in memory: as it begins, and as it will stand behind a snapshot's last entry."""

from __future__ import annotations

import pytest

from dledger.entry import NO_INDEX, NO_TERM, Entry
from dledger.raftlog import RaftLog
from tests.unit.dledger.raftharness import entries

NO_LIMIT = 1 << 30


def later_log() -> RaftLog:
    """Entries 5 to 9 of terms 2, 2, 4, 4, 6, behind entry 4 of term 2."""
    return RaftLog(entries(1, 1, 2, 2, 2, 2, 2, 4, 4, 6)[5:], prev_index=4, prev_term=2)


def terms(log: RaftLog) -> list[int]:
    return [entry.term for entry in log.slice(log.first_index, NO_LIMIT, NO_LIMIT)]


def test_an_empty_log_ends_where_it_begins() -> None:
    log = RaftLog()
    assert (log.first_index, log.last_index, log.last_term) == (0, NO_INDEX, NO_TERM)
    later = RaftLog(prev_index=4, prev_term=2)
    assert (later.first_index, later.last_index, later.last_term) == (5, 4, 2)
    assert later.matches(4, 2) and later.slice(5, NO_LIMIT, NO_LIMIT) == ()
    later.append([Entry(5, 3, b"x")])
    assert (later.last_index, later.last_term, later.entry(5).body) == (5, 3, b"x")


def test_a_log_knows_the_term_just_before_its_first_entry() -> None:
    log = later_log()
    assert [log.term_at(index) for index in range(4, 10)] == [2, 2, 2, 4, 4, 6]
    assert (log.last_index, log.last_term, log.entry(7)) == (9, 6, Entry(7, 4, b"7@4"))
    assert RaftLog(entries(1)).term_at(NO_INDEX) == NO_TERM


@pytest.mark.parametrize(
    ("index", "term", "expected"),
    [(4, 2, True), (4, 1, False), (7, 4, True), (7, 3, False), (9, 6, True), (10, 6, False), (3, 1, False)],
)
def test_an_entry_matches_only_where_the_log_knows_its_term(index: int, term: int, expected: bool) -> None:
    assert later_log().matches(index, term) is expected


@pytest.mark.parametrize("index", [4, 10])
def test_an_entry_that_the_log_does_not_hold_is_not_read(index: int) -> None:
    with pytest.raises(AssertionError, match=f"entry {index} is not in the log"):
        later_log().entry(index)


@pytest.mark.parametrize("index", [3, 10])
def test_no_term_is_told_that_the_log_does_not_know(index: int) -> None:
    with pytest.raises(AssertionError, match=f"term of entry {index}"):
        later_log().term_at(index)


def test_nothing_before_the_first_entry_is_sliced_or_cut() -> None:
    log = later_log()
    with pytest.raises(AssertionError, match="not in the log any more"):
        log.slice(4, NO_LIMIT, NO_LIMIT)
    with pytest.raises(AssertionError, match="not in the log any more"):
        log.cut(4)
    with pytest.raises(AssertionError, match="entry 4 is not in the log"):
        log.first_index_of_term_at(4)


@pytest.mark.parametrize("new", [entries(1)[:1], [Entry(11, 6, b"")], [Entry(10, 6, b""), Entry(12, 6, b"")]])
def test_a_hole_is_not_appended(new: list[Entry]) -> None:
    log = later_log()
    with pytest.raises(AssertionError, match="what follows entry 9"):
        log.append(new)
    assert log.last_index == 9


def test_a_log_does_not_begin_with_a_hole() -> None:
    with pytest.raises(AssertionError, match="what follows entry -1"):
        RaftLog(entries(1, 1)[1:])


def test_a_cut_log_goes_on_from_there() -> None:
    log = later_log()
    log.cut(7)
    log.append([Entry(7, 5, b"")])
    assert terms(log) == [2, 2, 5]
    log.cut(5)
    assert (log.first_index, log.last_index, log.last_term) == (5, 4, 2)


@pytest.mark.parametrize(
    ("index", "entries_max", "bytes_max", "expected"),
    [
        (5, 2, NO_LIMIT, [5, 6]),
        (8, 9, NO_LIMIT, [8, 9]),
        (10, 9, NO_LIMIT, []),
        (5, 9, 6, [5, 6]),  # bodies of 3 bytes
        (5, 9, 8, [5, 6]),
        (5, 9, 1, [5]),
    ],
)
def test_a_slice_keeps_to_its_limits_and_makes_progress(
    index: int, entries_max: int, bytes_max: int, expected: list[int]
) -> None:
    assert [entry.index for entry in later_log().slice(index, entries_max, bytes_max)] == expected


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ([], None),
        ([(5, 2), (6, 2)], None),
        ([(6, 2), (7, 5), (8, 5)], 7),
        ([(9, 6), (10, 6), (11, 6)], 10),
        ([(10, 6)], 10),
        ([(4, 2), (5, 2)], None),
        ([(4, 1), (5, 2)], 4),
    ],
)
def test_a_conflict_is_the_first_entry_that_differs_or_is_new(
    new: list[tuple[int, int]], expected: int | None
) -> None:
    assert later_log().find_conflict([Entry(index, term, b"") for index, term in new]) == expected


def test_a_term_begins_at_its_first_entry_in_the_log() -> None:
    log = later_log()
    assert [log.first_index_of_term_at(index) for index in range(5, 10)] == [5, 5, 7, 7, 9]


@pytest.mark.parametrize(
    ("term", "before", "expected"),
    [(4, 9, 8), (4, 8, 7), (4, 7, 6), (3, 9, 6), (2, 9, 6), (9, 9, 8), (1, 9, 4), (4, 5, 4)],
)
def test_the_last_entry_up_to_a_term_is_found_below_a_limit(term: int, before: int, expected: int) -> None:
    assert later_log().last_index_up_to_term(term, before) == expected
