"""A member's log as Raft sees it: the term of each entry, and of the entries themselves the recent ones.

Invariant: indexes count up by one from `first_index`, behind the entry (`prev_index`, its term) that the log begins after;
terms never fall. Entries from `recent_from` on are in memory, and all that `forget` was not told to be on the disk is among
them: what is older is to be read there. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from operator import itemgetter

from dledger.raft.entries import NO_INDEX, NO_TERM, Block, Entries, Entry
from dledger.raft.termruns import TermRuns

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
        self._recent: list[tuple[int, Block]] = []
        """With the index of the first entry of each."""
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
        at, number = self._place_of(index)
        block = self._recent[at][1]
        return Entry(index, block.term, block.body(number))

    def slice(self, index: int, entries_max: int, bytes_max: int) -> Entries:
        """Entries from `index` on, which is in memory, whose bodies fit into `bytes_max`; a larger one comes alone."""
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
        """Whether so many entries stand from `index` on, or bodies of so many bytes; believed where they are not in memory."""
        count = self.last_index - index + 1
        if count <= 0 or count >= entries_max or index < self.recent_from:
            return count > 0
        at, number = self._place_of(index)
        size = sum(block.size(len(block)) for _, block in islice(self._recent, at, None))
        return size - self._recent[at][1].size(number) >= bytes_max

    def _place_of(self, index: int) -> tuple[int, int]:
        """The block that the entry is in, and its number there; behind all blocks where it is not in the log yet."""
        if index > self.last_index:
            return len(self._recent), 0
        at = bisect_right(self._recent, index, key=itemgetter(0)) - 1
        return at, index - self._recent[at][0]

    def append(self, entries: Sequence[Entry]) -> None:
        new = Entries.of(entries)
        assert not new or new.first_index == self.last_index + 1, (
            f"only what follows entry {self.last_index} without a hole can be appended"
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
        """The disk has all up to there. Where more is in memory than is to be, the older half of that may go."""
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
        """Entries before that, which is in memory or the next to come, are in memory no more."""
        at, number = self._place_of(index)
        self.recent_bytes -= sum(cost(block) for _, block in self._recent[:at])
        del self._recent[:at]
        if number:
            block = self._recent[0][1]
            self._recent[0] = index, block.part(number, len(block)).alone()
            self.recent_bytes -= block.size(number, ENTRY_COST_BYTES)
        self.recent_from = index

    def begin_after(self, index: int) -> None:
        """What stands up to there, all of it decided, is in a snapshot and may be gone from the disk."""
        if index <= self.prev_index:
            return
        self._terms.begin_after(index)
        if self.recent_from <= index:
            self._forget_before(index + 1)

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
        for index, block in Entries.of(entries).numbered():
            end = index + len(block)
            while index < end:
                if not self.matches(index, block.term):
                    return index
                index = self._terms.behind_run_of(index)
        return None

    def term_and_its_first_index(self, index: int) -> tuple[int, int]:
        """What a leader backs up by, that compared `index`; NO_TERM and NO_INDEX beyond the end."""
        if index > self.last_index:
            return NO_TERM, NO_INDEX
        return self.term_at(index), self._terms.first_of_term_at(index)

    def last_index_up_to_term(self, term: int, before: int) -> int:
        """The last index below `before` whose term is not above `term`; `prev_index` when there is none."""
        return self._terms.last_up_to_term(term, before)


def cost(block: Block) -> int:
    return block.size(len(block), ENTRY_COST_BYTES)
