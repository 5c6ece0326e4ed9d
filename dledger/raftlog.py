"""The entries that a member holds in memory.

Invariant: indexes count up by one from `first_index`, behind the entry (`prev_index`, its term) that the log begins after;
terms never fall. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter

from dledger.entry import NO_INDEX, NO_TERM, Entry

TERM = attrgetter("term")


class RaftLog:
    """A log that nothing precedes begins after (NO_INDEX, NO_TERM)."""

    def __init__(
        self, entries: Sequence[Entry] = (), *, prev_index: int = NO_INDEX, prev_term: int = NO_TERM
    ) -> None:
        self.prev_index = prev_index
        self._entries = [Entry(prev_index, prev_term, b"")]
        """The entry that the log begins after comes first; of its body nothing is known."""
        self.append(entries)

    @property
    def first_index(self) -> int:
        return self.prev_index + 1

    @property
    def last_index(self) -> int:
        return self._entries[-1].index

    @property
    def last_term(self) -> int:
        return self._entries[-1].term

    def entry(self, index: int) -> Entry:
        assert self.prev_index < index <= self.last_index, f"entry {index} is not in the log"
        return self._entries[index - self.prev_index]

    def term_at(self, index: int) -> int:
        """Of the entry that the log begins after, too."""
        assert self.prev_index <= index <= self.last_index, f"the log does not know the term of entry {index}"
        return self._entries[index - self.prev_index].term

    def matches(self, index: int, term: int) -> bool:
        """False also where the log knows no term."""
        known = self.prev_index <= index <= self.last_index
        return known and self._entries[index - self.prev_index].term == term

    def slice(self, index: int, entries_max: int, bytes_max: int) -> tuple[Entry, ...]:
        """Entries from `index` on whose bodies fit into `bytes_max`; a larger one comes alone."""
        assert self.prev_index < index, f"entry {index} is not in the log any more"
        start = index - self.prev_index
        entries = self._entries[start : start + entries_max]
        size = 0
        for count, entry in enumerate(entries):
            size += len(entry.body)
            if count and size > bytes_max:
                return tuple(entries[:count])
        return tuple(entries)

    def append(self, entries: Sequence[Entry]) -> None:
        assert all(entry.index == index for index, entry in enumerate(entries, self.last_index + 1)), (
            f"only what follows entry {self.last_index} without a hole can be appended"
        )
        self._entries.extend(entries)

    def cut(self, index: int) -> None:
        """Removes the entries from `index` on."""
        assert self.prev_index < index, f"entry {index} is not in the log any more"
        del self._entries[index - self.prev_index :]

    # Where two logs part

    def find_conflict(self, entries: Sequence[Entry]) -> int | None:
        """The index of the first of `entries` that differs from this log or is new to it."""
        return next((entry.index for entry in entries if not self.matches(entry.index, entry.term)), None)

    def first_index_of_term_at(self, index: int) -> int:
        return self.prev_index + bisect_left(self._entries, self.entry(index).term, lo=1, key=TERM)

    def term_and_its_first_index(self, index: int) -> tuple[int, int]:
        """What a leader backs up by, that compared `index`; NO_TERM and NO_INDEX beyond the end."""
        if index > self.last_index:
            return NO_TERM, NO_INDEX
        return self.term_at(index), self.first_index_of_term_at(index)

    def last_index_up_to_term(self, term: int, before: int) -> int:
        """The last index below `before` whose term is not above `term`; `prev_index` when there is none."""
        end = before - self.prev_index
        return self.prev_index + bisect_right(self._entries, term, lo=1, hi=end, key=TERM) - 1
