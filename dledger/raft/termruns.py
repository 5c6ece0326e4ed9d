"""Which term each entry of a log has: an entry's term where runs of one term begin, for entries of a term stand together.

Invariant: indexes count up by one from `prev_index`, the entry that the log begins after; terms never fall; what is kept
grows with the terms, and not with the entries. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable

from dledger.raft.entries import NO_INDEX, NO_TERM


class TermsFall(ValueError):
    """An entry is of an older term than one before it: these are the terms of no log."""


class TermRuns:
    """A log that nothing precedes begins after (NO_INDEX, NO_TERM)."""

    def __init__(self, prev_index: int = NO_INDEX, prev_term: int = NO_TERM) -> None:
        self.last_index = prev_index
        self._firsts = array("q", [prev_index])
        self._terms = array("q", [prev_term])
        """The entry that the log begins after is a run of its own, the first, whatever comes behind it."""

    @property
    def prev_index(self) -> int:
        return self._firsts[0]

    @property
    def last_term(self) -> int:
        return self._terms[-1]

    def append(self, term: int, count: int = 1) -> None:
        """`count` more entries, all of `term`."""
        assert term >= self.last_term, f"term {term} cannot follow {self.last_term}"
        if count and (len(self._terms) == 1 or term > self.last_term):
            self._firsts.append(self.last_index + 1)
            self._terms.append(term)
        self.last_index += count

    def begin_after(self, index: int) -> None:
        """The terms of entries before `index` are known no more."""
        assert index <= self.last_index, f"entry {index} is not in the log yet"
        if index <= self.prev_index:
            return
        run, term = self._run_of(index), self.term_at(index)
        goes_on = run + 1 == len(self._firsts) or self._firsts[run + 1] > index + 1
        behind = [index + 1] if goes_on and index < self.last_index else []
        self._firsts = array("q", [index, *behind]) + self._firsts[run + 1 :]
        self._terms = array("q", [term] * (1 + len(behind))) + self._terms[run + 1 :]

    def cut(self, index: int) -> None:
        """Removes the entries from `index` on."""
        assert self.prev_index < index, f"entry {index} is not in the log any more"
        if index <= self.last_index:
            runs = self._run_of(index - 1) + 1
            del self._firsts[runs:], self._terms[runs:]
            self.last_index = index - 1

    def term_at(self, index: int) -> int:
        """Of the entry that the log begins after, too."""
        assert self.prev_index <= index <= self.last_index, f"the log does not know the term of entry {index}"
        return self._terms[self._run_of(index)]

    def first_of_term_at(self, index: int) -> int:
        """Where the term of entry `index` begins in this log."""
        assert self.prev_index < index <= self.last_index, f"entry {index} is not in the log"
        return self._firsts[self._run_of(index)]

    def behind_run_of(self, index: int) -> int:
        """The next index of another term than entry `index` has, or behind the log's end."""
        run = self._run_of(index) + 1
        return self._firsts[run] if run < len(self._firsts) else self.last_index + 1

    def last_up_to_term(self, term: int, before: int) -> int:
        """The last index below `before` whose term is not above `term`; `prev_index` when there is none."""
        later = max(1, bisect_right(self._terms, term))
        ends = self._firsts[later] if later < len(self._firsts) else self.last_index + 1
        return max(self.prev_index, min(ends, before) - 1)

    def _run_of(self, index: int) -> int:
        return bisect_right(self._firsts, index) - 1


def runs_of(last_index: int, term_of: Callable[[int], int], before: TermRuns | None = None) -> TermRuns:
    """Those of all entries behind `before` up to `last_index`. `term_of` is asked for a few entries of each run: twice the
    logarithm of its length, so that a log of many entries costs little, and one of many terms not more than its entries.
    Raises TermsFall."""
    runs = before or TermRuns()
    while (first := runs.last_index + 1) <= last_index:
        term, step = term_of(first), 1
        if term < runs.last_term:
            raise TermsFall(f"entry {first} is of term {term}, one before it of {runs.last_term}")
        while first + step <= last_index and term_of(first + step) == term:
            step *= 2
        low, high = (
            first + step // 2,
            min(first + step, last_index + 1),
        )  # of `low` the term is known, and `high` is beyond
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if term_of(middle) == term else (low, middle)
        runs.append(term, high - first)
    return runs
