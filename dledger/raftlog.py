"""A member's log as Raft sees it: the term of each entry, and of the entries themselves the recent ones.

Invariant: indexes count up by one from `first_index`, behind the entry (`prev_index`, its term) that the log begins after;
terms never fall. Entries from `recent_from` on are in memory, and all that `forget` was not told to be on the disk is among
them: what is older is to be read there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from dledger.entry import NO_INDEX, NO_TERM, Entry
from dledger.termruns import TermRuns

ENTRY_COST_BYTES = 160
"""What an entry takes in memory beside its body, about."""
UNLIMITED = 1 << 62


class RaftLog:
    """`entries` come behind what `older` knows the terms of; a log that nothing precedes needs none."""

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
        self._recent: list[Entry] = []
        self.recent_bytes = 0
        """What the entries in memory take, about."""
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
        """One that is in memory."""
        assert self.holds(index), f"entry {index} is not in memory"
        return self._recent[index - self.recent_from]

    def slice(self, index: int, entries_max: int, bytes_max: int) -> tuple[Entry, ...]:
        """Entries from `index` on, which is in memory, whose bodies fit into `bytes_max`; a larger one comes alone."""
        assert self.recent_from <= index, f"entry {index} is not in memory any more"
        start = index - self.recent_from
        entries = self._recent[start : start + entries_max]
        size = 0
        for count, entry in enumerate(entries):
            size += len(entry.body)
            if count and size > bytes_max:
                return tuple(entries[:count])
        return tuple(entries)

    def fills(self, index: int, entries_max: int, bytes_max: int) -> bool:
        """Whether so many entries stand from `index` on, or bodies of so many bytes; believed where they are not in memory."""
        count = self.last_index - index + 1
        if count >= entries_max or index < self.recent_from:
            return count > 0
        return sum(len(entry.body) for entry in self._recent[index - self.recent_from :]) >= bytes_max

    def append(self, entries: Sequence[Entry]) -> None:
        assert all(entry.index == index for index, entry in enumerate(entries, self.last_index + 1)), (
            f"only what follows entry {self.last_index} without a hole can be appended"
        )
        for term, run in groupby(entries, key=lambda entry: entry.term):
            self._terms.append(term, sum(1 for _ in run))
        self.recent_bytes += sum(map(cost, entries))
        self._recent.extend(entries)

    def cut(self, index: int) -> None:
        """Removes the entries from `index` on."""
        self._terms.cut(index)
        kept = max(0, index - self.recent_from)
        self.recent_bytes -= sum(map(cost, self._recent[kept:]))
        del self._recent[kept:]
        self.recent_from = min(self.recent_from, self.last_index + 1)

    def forget(self, durable_index: int) -> None:
        """The disk has all up to there. Where more is in memory than is to be, the older half of that may go."""
        if self.recent_bytes <= self.recent_bytes_max:
            return
        gone, kept_bytes = 0, self.recent_bytes
        while kept_bytes > self.recent_bytes_max // 2 and self.recent_from + gone <= durable_index:
            kept_bytes -= cost(self._recent[gone])
            gone += 1
        del self._recent[:gone]
        self.recent_bytes = kept_bytes
        self.recent_from += gone

    def begin_after(self, index: int) -> None:
        """What stands up to there, all of it decided, is in a snapshot and may be gone from the disk."""
        if index <= self.prev_index:
            return
        self._terms.begin_after(index)
        gone = max(0, index + 1 - self.recent_from)
        self.recent_bytes -= sum(map(cost, self._recent[:gone]))
        del self._recent[:gone]
        self.recent_from += gone

    def restart(self, index: int, term: int) -> None:
        """A snapshot that ends with that entry stands for everything in the log."""
        self._terms = TermRuns(index, term)
        self._recent.clear()
        self.recent_bytes, self.recent_from = 0, index + 1

    # Terms

    def term_at(self, index: int) -> int:
        """Of the entry that the log begins after, too."""
        return self._terms.term_at(index)

    def matches(self, index: int, term: int) -> bool:
        """False also where the log knows no term."""
        return self.prev_index <= index <= self.last_index and self._terms.term_at(index) == term

    def find_conflict(self, entries: Sequence[Entry]) -> int | None:
        """The index of the first of `entries` that differs from this log or is new to it."""
        return next((entry.index for entry in entries if not self.matches(entry.index, entry.term)), None)

    def term_and_its_first_index(self, index: int) -> tuple[int, int]:
        """What a leader backs up by, that compared `index`; NO_TERM and NO_INDEX beyond the end."""
        if index > self.last_index:
            return NO_TERM, NO_INDEX
        return self.term_at(index), self._terms.first_of_term_at(index)

    def last_index_up_to_term(self, term: int, before: int) -> int:
        """The last index below `before` whose term is not above `term`; `prev_index` when there is none."""
        return self._terms.last_up_to_term(term, before)


def cost(entry: Entry) -> int:
    return len(entry.body) + ENTRY_COST_BYTES
