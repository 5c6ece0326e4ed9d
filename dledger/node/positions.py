"""Positions in the data files. With `same_positions` each entry has the same position on every member, known before the entry
is written; `PositionTracker` tracks these. `Positions` finds the positions of committed entries in this member's data files,
also before this disk has the entries.

Invariant: the position of an entry follows from the sizes of the entries before it. So a position from `reserve` is right if
nothing else is appended first. `readable` entries are committed and on this disk, and their end never falls. A returned
position of a committed entry never changes, because committed entries are not cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

from dledger.raft.actions import PersistThenSend
from dledger.raft.entries import NO_INDEX, Block, Entries
from dledger.raft.errors import LogDamaged
from dledger.raft.raft import Raft
from dledger.raft.snapshot import Begin
from dledger.storage.entry import ENTRY_HEADER_BYTES
from dledger.storage.entrylog import EntryLog
from dledger.storage.snapshot import position_in


class Disk(Protocol):
    """The methods of the log on disk that are used here."""

    begin: Begin
    end: int

    def start_of(self, size: int, end: int) -> int: ...

    def stretch(self, block: Block, end: int) -> tuple[int, int]: ...

    def end_of(self, index: int) -> int: ...


class EntryRun(NamedTuple):
    """Entries in a row; the first begins at `position`. Without a block, one entry that ends at `position`."""

    first_index: int
    position: int
    block: Block | None

    @property
    def last_index(self) -> int:
        return self.first_index + (len(self.block) - 1 if self.block else 0)

    def holds(self, index: int) -> bool:
        return self.first_index <= index <= self.last_index

    def end_of(self, index: int) -> int:
        count = index + 1 - self.first_index
        return self.position + (self.block.size(count, ENTRY_HEADER_BYTES) if self.block else 0)


class PositionTracker:
    """Tracks the positions of the log. At first the log is the durable log of `disk`, committed up to `committed_index`. Then
    `took` is called with each change that the core makes to the log in memory. The ends of entries that are only in memory are
    kept here; the ends of other entries are in the disk's index."""

    def __init__(self, disk: Disk, committed_index: int) -> None:
        self._disk = disk
        self._ends: deque[EntryRun] = deque()
        """Entries that were appended since the start. Of the readable entries at most the last is kept."""
        self.readable = committed_index, disk.end_of(committed_index)
        """The last entry that is committed and durable here, and this entry's end."""
        self.end = disk.end
        """The end of the log in memory."""
        self._gathered_end: int | None = None
        self._gathered_behind = disk.end
        self._reserved: tuple[int, list[int], list[int]] | None = None
        """The last reservation: the end of the log, the sizes, and the positions."""

    # Proposers

    @property
    def gathered_end(self) -> int:
        """The end of the log once the gathered bodies are appended."""
        return self.end if self._gathered_end is None else self._gathered_end

    def reserve(self, sizes: Sequence[int]) -> list[int]:
        """The positions of entries with bodies of these sizes, if these bodies are gathered next."""
        ends = self._walk(sizes, self.gathered_end)
        positions = [end - size - ENTRY_HEADER_BYTES for size, end in zip(sizes, ends, strict=True)]
        self._reserved = self.gathered_end, list(sizes), positions
        return positions

    def matches_reservation(self, sizes: list[int], claimed: Iterable[tuple[int, int]]) -> bool:
        """Whether positions for bodies of these sizes were reserved last, and nothing was gathered since. `claimed` has the
        positions that some bodies contain, by the number of the body."""
        placed, self._reserved = self._reserved, None
        if placed is None or placed[0] != self.gathered_end or placed[1] != sizes:
            return False
        return all(placed[2][number] == position for number, position in claimed)

    def gather(self, sizes: Sequence[int]) -> None:
        """Adds bodies of these sizes to the gathered bodies."""
        if self._gathered_end is None:
            self._gathered_behind = self.end
        self._gathered_end = self._walk(sizes, self.gathered_end)[-1]

    @property
    def ends_where_it_did(self) -> bool:
        """Whether the log ends where it did when the first body was gathered."""
        return self._gathered_end is None or self._gathered_behind == self.end

    def nothing_gathered(self) -> None:
        """Called when the gathered bodies were appended or dropped."""
        self._gathered_end = None

    @property
    def waiting_bytes(self) -> int:
        """The number of bytes that are not readable yet, gathered bodies included."""
        return self.gathered_end - self.readable[1]

    # The log

    def took(self, step: PersistThenSend) -> None:
        """Called when the core has changed its log by `step`, which is on its way to the disk."""
        if step.snapshot is not None:
            index, self.end = step.snapshot.last_index, position_in(step.snapshot)
            self._cut(index)
            self._ends.append(EntryRun(index, self.end, None))
        if step.cut_from is not None:
            self._cut(step.cut_from)
            self.end = self._end_of(step.cut_from - 1)
        for first, block in Entries.of(step.entries).numbered():
            self._took_block(first, block)

    def _took_block(self, first: int, block: Block) -> None:
        taken = 0
        while taken < len(block):
            rest = block.part(taken, len(block))
            position, count = self._disk.stretch(rest, self.end)
            self._ends.append(EntryRun(first + taken, position, rest.part(0, count)))
            taken += count
            self.end = self._ends[-1].end_of(first + taken - 1)

    def reached(self, index: int) -> bool:
        """Called when entries up to `index` are committed and durable. Returns whether more entries are readable than before.
        Raises LogDamaged."""
        if index <= self.readable[0] or self._is_replaced(index):
            return False
        while self._ends and self._ends[0].last_index < index:
            self._ends.popleft()
        before = self.readable[1]
        self.readable = index, self._end_of(index)
        assert self.readable[1] >= before, f"what was readable up to {before} ends at {self.readable[1]} now"
        return True

    def _is_replaced(self, index: int) -> bool:
        """Whether the disk already has a snapshot in place of entry `index`. The commit of its last entry is about to come."""
        return index < self._disk.begin.index

    def _cut(self, index: int) -> None:
        while self._ends and self._ends[-1].last_index >= index:
            last = self._ends.pop()
            if last.block is not None and last.first_index < index:
                self._ends.append(last._replace(block=last.block.part(0, index - last.first_index)))

    def _end_of(self, index: int) -> int:
        """The end of an entry after the readable entries, or of the last readable entry."""
        if index == self.readable[0]:
            return self.readable[1]
        if self._ends and index >= self._ends[0].first_index:
            stretch = self._ends[0] if self._ends[0].holds(index) else self._ends[-1]
            assert stretch.holds(index), f"the end of entry {index} is not asked for, only of later ones"
            return stretch.end_of(index)
        return self._disk.end_of(index)

    def _walk(self, sizes: Iterable[int], end: int) -> list[int]:
        """The ends of entries with bodies of these sizes in a log that ends at `end`."""
        wholes = [ENTRY_HEADER_BYTES + size for size in sizes]
        if self._disk.start_of(sum(wholes), end) == end:  # no file ends between these entries
            return list(accumulate(wholes, initial=end))[1:]
        ends: list[int] = []
        for whole in wholes:
            end = self._disk.start_of(whole, end) + whole
            ends.append(end)
        return ends


class Positions:
    """The positions in the log of `core` and `disk`."""

    def __init__(self, core: Raft, disk: EntryLog) -> None:
        self._core = core
        self._disk = disk
        self._known = NO_INDEX, 0
        """A committed entry and its end, kept for later calls."""

    def of(self, index: int) -> int:
        """The number of bytes from the beginning of the data files to the committed entry `index`. Raises LogDamaged."""
        durable = self._core.durable_index
        if index <= durable:
            return self._disk.stored_unit(index).position
        at, end = self._known
        if not durable <= at < index:
            at, end = durable, self._end_of(durable)
        start = end
        for next_index in range(at + 1, index + 1):  # entries that are not on the disk are in memory
            size = ENTRY_HEADER_BYTES + len(self._core.log.entry(next_index).body)
            start = self._disk.start_of(size, end)
            end = start + size
        self._known = index, end
        return start

    def if_intact(self, index: int) -> int | None:
        """Like `of`, but None if `of` raises."""
        try:
            return self.of(index)
        except LogDamaged:
            return None

    def _end_of(self, index: int) -> int:
        begin = self._disk.begin
        return begin.position if index <= begin.index else self._disk.stored_unit(index).end
