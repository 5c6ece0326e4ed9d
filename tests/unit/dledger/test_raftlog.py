"""The log as Raft sees it: empty, after a snapshot's last entry, and with its older part not in memory."""

from __future__ import annotations

import pytest

from dledger.raft.entries import NO_INDEX, NO_TERM, Entry
from dledger.raft.log import ENTRY_COST_BYTES, RaftLog, TermRuns, TermsFall, runs_of
from tests.unit.dledger.raftharness import entries

NO_LIMIT = 1 << 30


def later_log() -> RaftLog:
    """Entries 5 to 9 of terms 2, 2, 4, 4, 6, after entry 4 of term 2."""
    return RaftLog(entries(1, 1, 2, 2, 2, 2, 2, 4, 4, 6)[5:], older=TermRuns(4, 2))


def terms(log: RaftLog) -> list[int]:
    return [entry.term for entry in log.slice(log.first_index, NO_LIMIT, NO_LIMIT)]


def test_an_empty_log_ends_where_it_begins() -> None:
    log = RaftLog()
    assert (log.first_index, log.last_index, log.last_term) == (0, NO_INDEX, NO_TERM)
    later = RaftLog(older=TermRuns(4, 2))
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
    with pytest.raises(AssertionError, match=f"entry {index} is not in memory"):
        later_log().entry(index)


@pytest.mark.parametrize("index", [3, 10])
def test_the_term_of_an_unknown_entry_is_not_returned(index: int) -> None:
    with pytest.raises(AssertionError, match=f"term of entry {index}"):
        later_log().term_at(index)


def test_nothing_before_the_first_entry_is_sliced_or_cut() -> None:
    log = later_log()
    with pytest.raises(AssertionError, match="not in memory any more"):
        log.slice(4, NO_LIMIT, NO_LIMIT)
    with pytest.raises(AssertionError, match="not in the log any more"):
        log.cut(4)
    with pytest.raises(AssertionError, match="entry 4 is not in the log"):
        log.term_and_its_first_index(4)


@pytest.mark.parametrize("new", [entries(1)[:1], [Entry(11, 6, b"")], [Entry(10, 6, b""), Entry(12, 6, b"")]])
def test_entries_with_a_gap_are_not_appended(new: list[Entry]) -> None:
    log = later_log()
    with pytest.raises(AssertionError, match="without a gap"):
        log.append(new)
    assert log.last_index == 9


def test_a_log_does_not_begin_with_a_gap() -> None:
    with pytest.raises(AssertionError, match="follows entry -1"):
        RaftLog(entries(1, 1)[1:])


def test_a_cut_log_continues_at_the_cut() -> None:
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
    assert [log.term_and_its_first_index(index)[1] for index in range(5, 11)] == [5, 5, 7, 7, 9, NO_INDEX]


@pytest.mark.parametrize(
    ("term", "before", "expected"),
    [(4, 9, 8), (4, 8, 7), (4, 7, 6), (3, 9, 6), (2, 9, 6), (9, 9, 8), (1, 9, 4), (4, 5, 4)],
)
def test_the_last_entry_up_to_a_term_is_found_below_a_limit(term: int, before: int, expected: int) -> None:
    assert later_log().last_index_up_to_term(term, before) == expected


def small(count: int, bytes_max: int, *, older: int = 0) -> RaftLog:
    """`count` entries of term 3 after `older` ones of term 2, without bodies."""
    runs = TermRuns()
    runs.append(2, older)
    log = RaftLog(older=runs, recent_bytes_max=bytes_max * ENTRY_COST_BYTES)
    log.append([Entry(index, 3, b"") for index in range(older, older + count)])
    return log


def test_durable_entries_leave_memory_and_their_terms_stay() -> None:
    log = small(10, 4)
    log.forget(7)
    assert [log.holds(index) for index in range(11)] == [False] * 8 + [True, True, False]
    assert [log.term_at(index) for index in range(10)] == [3] * 10
    assert (log.first_index, log.recent_from, log.last_index, log.matches(1, 3)) == (0, 8, 9, True)
    assert [entry.index for entry in log.slice(8, 9, NO_LIMIT)] == [8, 9]
    with pytest.raises(AssertionError, match="entry 7 is not in memory"):
        log.slice(7, 9, NO_LIMIT)


def test_entries_that_are_not_durable_stay_in_memory() -> None:
    log = small(10, 0)
    log.forget(3)
    assert log.recent_from == 4
    log.forget(NO_INDEX)
    assert log.recent_from == 4


def test_entries_leave_memory_only_above_the_limit_and_half_of_it_stays() -> None:
    log = small(8, 8)
    log.forget(7)
    assert log.recent_from == 0
    log.append([Entry(8, 3, b"")])
    log.forget(8)
    assert log.recent_from == 5


@pytest.mark.parametrize(("cut", "recent_from"), [(9, 5), (6, 5), (5, 5), (3, 3)])
def test_a_log_can_be_cut_below_the_entries_in_memory(cut: int, recent_from: int) -> None:
    log = small(5, 10, older=5)
    log.cut(cut)
    assert (log.last_index, log.recent_from) == (cut - 1, recent_from)
    log.append([Entry(cut, 7, b"new")])
    assert (log.entry(cut).term, log.last_term, log.term_at(cut - 1)) == (7, 7, 2 if cut <= 5 else 3)


@pytest.mark.parametrize(
    "terms",
    [
        [],
        [0],
        [1, 1, 1],
        [1, 2, 3, 4],
        [1] * 7 + [2],
        [1] + [9] * 8,
        [0, 0, 5, 5, 5, 6, 8, 8, 8, 8, 8, 8, 8, 9, 9],
    ],
)
def test_the_term_runs_of_a_log_are_found_from_some_of_its_terms(terms: list[int]) -> None:
    found = runs_of(len(terms) - 1, lambda index: terms[index])
    assert [found.term_at(index) for index in range(len(terms))] == terms
    firsts = [found.first_of_term_at(index) for index in range(len(terms))]
    assert firsts == [terms.index(term) for term in terms]


def test_decreasing_terms_are_refused() -> None:
    with pytest.raises(TermsFall, match="entry 2 is of term 3, one before it of 4"):
        runs_of(3, [4, 4, 3, 5].__getitem__)


def test_few_terms_of_a_long_run_are_read() -> None:
    asked: list[int] = []

    def term_of(index: int) -> int:
        asked.append(index)
        return 1 if index < 7_654_321 else 2

    found = runs_of(9_999_999, term_of)
    assert (found.first_of_term_at(9_999_999), found.last_index) == (7_654_321, 9_999_999)
    assert len(asked) < 100
