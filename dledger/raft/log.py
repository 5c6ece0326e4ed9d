"""A member's log as Raft uses it: the term of each entry, the recent entries, and the end of the log on the disk.

Invariants:
- indexes count up by one from `first_index`. The log begins after the entry with `prev_index` and its term. Terms never fall.
  The memory for terms grows with the number of terms and not of entries;
- entries from `recent_from` on are in memory; this includes all entries for which `forget` was not called. Older entries are
  read from the disk;
- entries that `Unsynced.confirmed` has not covered count as lost. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter

from dledger.raft.entries import NO_INDEX, NO_TERM, Block, Entries, Entry

ENTRY_COST_BYTES = 160
"""The approximate memory of an entry without its body."""
UNLIMITED = 1 << 62


class RaftLog:
    """The log. `older` has the terms of older entries, which `entries` follow. A log that begins at index 0 needs no
    `older`."""

    def __init__(
        self,
        entries: Sequence[Entry] = (),
        *,
        older: TermRuns | None = None,
        recent_bytes_max: int = UNLIMITED,
    ) -> None:
        self._terms = older or TermRuns()
        self.recent_bytes_max = recent_bytes_max
        self.recent_from = self._terms.last_index + 1
        self._recent: list[tuple[int, Block]] = []
        """Each block with the index of its first entry."""
        self.recent_bytes = 0
        """The approximate memory of the recent entries."""
        self.append(entries)

    @property
    def prev_index(self) -> int:
        return self._terms.prev_index

    @property
    def first_index(self) -> int:
        return self.prev_index + 1

    @property
    def last_index(self) -> int:
        return self._terms.last_index

    @property
    def last_term(self) -> int:
        return self._terms.last_term

    # Entries

    def holds(self, index: int) -> bool:
        """Whether the entry is in memory."""
        return self.recent_from <= index <= self.last_index

    def entry(self, index: int) -> Entry:
        """Entry `index`, which must be in memory."""
        assert self.holds(index), f"entry {index} is not in memory"
        at, number = self._place_of(index)
        block = self._recent[at][1]
        return Entry(index, block.term, block.body(number))

    def slice(self, index: int, entries_max: int, bytes_max: int) -> Entries:
        """Entries from `index` on, with bodies of at most `bytes_max` together; a larger entry is returned alone. Entry `index`
        must be in memory."""
        assert self.recent_from <= index, f"entry {index} is not in memory any more"
        found: list[Block] = []
        at, number = self._place_of(index)
        for _, block in islice(self._recent, at, None):
            behind = block.part(number, len(block))
            count = min(entries_max, behind.fitting(bytes_max) or (0 if found else 1))
            if count:
                found.append(behind.part(0, count))
                entries_max, bytes_max = entries_max - count, bytes_max - behind.size(count)
            if count < len(behind) or not entries_max:
                break
            number = 0
        return Entries(index, tuple(found))

    def fills(self, index: int, entries_max: int, bytes_max: int) -> bool:
        """Whether there are at least `entries_max` entries from `index` on, or bodies of at least `bytes_max`. True if the
        entries are not in memory."""
        count = self.last_index - index + 1
        if count <= 0 or count >= entries_max or index < self.recent_from:
            return count > 0
        at, number = self._place_of(index)
        size = sum(block.size(len(block)) for _, block in islice(self._recent, at, None))
        return size - self._recent[at][1].size(number) >= bytes_max

    def _place_of(self, index: int) -> tuple[int, int]:
        """The number of the block with entry `index`, and the entry's number in the block. For an entry that is not in the log
        yet, the place after all blocks."""
        if index > self.last_index:
            return len(self._recent), 0
        at = bisect_right(self._recent, index, key=itemgetter(0)) - 1
        return at, index - self._recent[at][0]

    def append(self, entries: Sequence[Entry]) -> None:
        new = Entries.of(entries)
        assert not new or new.first_index == self.last_index + 1, (
            f"an appended entry follows entry {self.last_index} without a gap"
        )
        for first, block in new.numbered():
            self._terms.append(block.term, len(block))
            self._recent.append((first, block))
            self.recent_bytes += cost(block)

    def cut(self, index: int) -> None:
        """Removes the entries from `index` on."""
        at, number = self._place_of(max(index, self.recent_from))
        self._terms.cut(index)
        gone = self._recent[at:]
        del self._recent[at:]
        self.recent_bytes -= sum(cost(block) for _, block in gone)
        if number:
            first, block = gone[0]
            self._recent.append((first, block.part(0, number).alone()))
            self.recent_bytes += cost(self._recent[-1][1])
        self.recent_from = min(self.recent_from, self.last_index + 1)

    def forget(self, durable_index: int) -> None:
        """Called when the disk has the entries up to `durable_index`. If more than the limit is in memory, the older half may
        be removed from memory."""
        if self.recent_bytes <= self.recent_bytes_max:
            return
        surplus, index = self.recent_bytes - self.recent_bytes_max // 2, self.recent_from
        for _, block in self._recent:
            count = min(
                len(block), block.fitting(surplus - 1, ENTRY_COST_BYTES) + 1, durable_index + 1 - index
            )
            if surplus <= 0 or count <= 0:
                break
            surplus -= block.size(count, ENTRY_COST_BYTES)
            index += count
        self._forget_before(index)

    def _forget_before(self, index: int) -> None:
        """Removes entries before `index` from memory; `index` is in memory or comes next."""
        at, number = self._place_of(index)
        self.recent_bytes -= sum(cost(block) for _, block in self._recent[:at])
        del self._recent[:at]
        if number:
            block = self._recent[0][1]
            self._recent[0] = index, block.part(number, len(block)).alone()
            self.recent_bytes -= block.size(number, ENTRY_COST_BYTES)
        self.recent_from = index

    def begin_after(self, index: int) -> None:
        """Lets the log begin after `index`: the entries up to `index`, all committed, are in a snapshot and may be deleted from
        the disk."""
        if index <= self.prev_index:
            return
        self._terms.begin_after(index)
        if self.recent_from <= index:
            self._forget_before(index + 1)

    def restart(self, index: int, term: int) -> None:
        """Replaces the whole log by a snapshot that ends with this entry."""
        self._terms = TermRuns(index, term)
        self._recent.clear()
        self.recent_bytes, self.recent_from = 0, index + 1

    # Terms

    def term_at(self, index: int) -> int:
        """The term of an entry of the log, or of the one that it begins after."""
        return self._terms.term_at(index)

    def matches(self, index: int, term: int) -> bool:
        """Whether entry `index` has this term; False if the log does not know its term."""
        return self.prev_index <= index <= self.last_index and self._terms.term_at(index) == term

    def find_conflict(self, entries: Sequence[Entry]) -> int | None:
        """The index of the first of `entries` that differs from this log or is new to it; None if the log has all of them."""
        for index, block in Entries.of(entries).numbered():
            end = index + len(block)
            while index < end:
                if not self.matches(index, block.term):
                    return index
                index = self._terms.behind_run_of(index)
        return None

    def term_and_its_first_index(self, index: int) -> tuple[int, int]:
        """The term of entry `index` and the first index of this term: the hint with which a leader that compared `index` backs
        up. NO_TERM and NO_INDEX beyond the log's end."""
        if index > self.last_index:
            return NO_TERM, NO_INDEX
        return self.term_at(index), self._terms.first_of_term_at(index)

    def last_index_up_to_term(self, term: int, before: int) -> int:
        """The last index below `before` whose term is not above `term`; `prev_index` if there is none."""
        return self._terms.last_up_to_term(term, before)


def cost(block: Block) -> int:
    return block.size(len(block), ENTRY_COST_BYTES)


class TermsFall(ValueError):
    """An entry has an older term than an entry before it, which no log can have."""


class TermRuns:
    """The terms of a log's entries, as runs of entries with one term. A log that begins with index 0 begins after (NO_INDEX,
    NO_TERM)."""

    def __init__(self, prev_index: int = NO_INDEX, prev_term: int = NO_TERM) -> None:
        self.last_index = prev_index
        self._firsts = array("q", [prev_index])
        self._terms = array("q", [prev_term])
        """The term of each run. The first run is only the entry after which the log begins."""

    @property
    def prev_index(self) -> int:
        return self._firsts[0]

    @property
    def last_term(self) -> int:
        return self._terms[-1]

    def append(self, term: int, count: int = 1) -> None:
        """Appends `count` entries of `term`."""
        assert term >= self.last_term, f"term {term} cannot follow {self.last_term}"
        if count and (len(self._terms) == 1 or term > self.last_term):
            self._firsts.append(self.last_index + 1)
            self._terms.append(term)
        self.last_index += count

    def begin_after(self, index: int) -> None:
        """Forgets the terms of entries before `index`."""
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
        """The term of an entry of the log, or of the one that it begins after."""
        assert self.prev_index <= index <= self.last_index, f"the log does not know the term of entry {index}"
        return self._terms[self._run_of(index)]

    def first_of_term_at(self, index: int) -> int:
        """The first index of the term of entry `index` in this log."""
        assert self.prev_index < index <= self.last_index, f"entry {index} is not in the log"
        return self._firsts[self._run_of(index)]

    def behind_run_of(self, index: int) -> int:
        """The next index with another term than entry `index`, or the index after the log's end."""
        run = self._run_of(index) + 1
        return self._firsts[run] if run < len(self._firsts) else self.last_index + 1

    def last_up_to_term(self, term: int, before: int) -> int:
        """The last index below `before` whose term is not above `term`; `prev_index` if there is none."""
        later = max(1, bisect_right(self._terms, term))
        ends = self._firsts[later] if later < len(self._firsts) else self.last_index + 1
        return max(self.prev_index, min(ends, before) - 1)

    def _run_of(self, index: int) -> int:
        return bisect_right(self._firsts, index) - 1


def runs_of(last_index: int, term_of: Callable[[int], int], before: TermRuns | None = None) -> TermRuns:
    """The runs of all entries after `before`, up to `last_index`. For each run `term_of` is called about twice the logarithm of
    the run's length, so long runs cost little, and short runs cost no more than their entries. Raises TermsFall."""
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
        )  # `low` is in the run, and `high` is after it
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if term_of(middle) == term else (low, middle)
        runs.append(term, high - first)
    return runs


@dataclass(slots=True)
class Pending:
    """A PersistThenSend that is not confirmed yet: the end of the log after it, and whether it has a vote."""

    end: int
    vote: bool


class Unsynced:
    """The writes that the disk has not confirmed. The disk certainly has the log up to `durable_index`."""

    def __init__(self, durable_index: int, now_ms: int) -> None:
        self.durable_index = durable_index
        self._pending: deque[Pending] = deque()
        self._heard_ms = now_ms

    @property
    def has_vote(self) -> bool:
        """Whether a vote or a term is on its way to the disk. This member sends nothing until the vote or term is durable."""
        return any(waiting.vote for waiting in self._pending)

    def waits(self, end: int, *, vote: bool, now_ms: int) -> None:
        if not self._pending:
            self._heard_ms = now_ms
        self._pending.append(Pending(end, vote))

    def confirmed(self, now_ms: int) -> Pending:
        """Called when the oldest waiting PersistThenSend is durable."""
        self._heard_ms = now_ms
        oldest = self._pending.popleft()
        self.durable_index = max(self.durable_index, oldest.end)
        return oldest

    def cut(self, index: int) -> None:
        """Called when the entries from `index` on are cut."""
        self.durable_index = min(self.durable_index, index - 1)
        for waiting in self._pending:
            waiting.end = min(waiting.end, index - 1)

    def silent_ms(self, now_ms: int) -> int:
        """The time since the disk last confirmed a write; 0 if no write waits."""
        return now_ms - self._heard_ms if self._pending else 0
