"""Where the entries of a log stand that has each at the same position in the data files of every member, told before they are
written.

Invariant: where an entry goes follows from the sizes of those before it, so what `place` says comes true if nothing else is
appended first; what is `readable` is decided and on the own disk, and its end never falls.

Where decided entries stand in this member's data files, told also before its own disk has them.

Invariant: a position that was told never changes: what is decided is not cut, and where an entry goes follows from the sizes of
those before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

from dledger.raft.actions import PersistThenSend
from dledger.raft.entries import NO_INDEX, Block, Entries
from dledger.raft.errors import LogDamaged
from dledger.raft.raft import Raft
from dledger.storage.entry import ENTRY_HEADER_BYTES
from dledger.storage.entrylog import EntryLog
from dledger.storage.snapshot import position_in


class Disk(Protocol):
    """What is asked of a log on disk."""

    end: int

    def start_of(self, size: int, end: int) -> int: ...

    def stretch(self, block: Block, end: int) -> tuple[int, int]: ...

    def end_of(self, index: int) -> int: ...


class Stretch(NamedTuple):
    """Entries that stand side by side, the first of them at `position`; or without a block one that ends there."""

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
    """Of the log that `disk` has, all of it durable, and that is decided up to `committed_index`. What the core does to it
    in memory is told by `took`; what stands in memory alone has its end here, of the rest the disk's index tells."""

    def __init__(self, disk: Disk, committed_index: int) -> None:
        self._disk = disk
        self._ends: deque[Stretch] = deque()
        """Entries that came since; of those that are readable the last of them at most."""
        self.readable = committed_index, disk.end_of(committed_index)
        """The last entry that is decided and durable here, and where it ends."""
        self.end = disk.end
        """Where the log ends that is in memory."""
        self._gathered_end: int | None = None
        self._gathered_behind = disk.end
        self._reserved: tuple[int, list[int], list[int]] | None = None
        """What `place` told last: behind which end, of which sizes, and where."""

    # Proposers

    @property
    def gathered_end(self) -> int:
        """Where the log will end once what was gathered is appended."""
        return self.end if self._gathered_end is None else self._gathered_end

    def reserve(self, sizes: Sequence[int]) -> list[int]:
        """Where entries with bodies of these sizes stand if they come next, behind what was gathered."""
        ends = self._walk(sizes, self.gathered_end)
        positions = [end - size - ENTRY_HEADER_BYTES for size, end in zip(sizes, ends, strict=True)]
        self._reserved = self.gathered_end, list(sizes), positions
        return positions

    def matches_reservation(self, sizes: list[int], told: Iterable[tuple[int, int]]) -> bool:
        """Whether bodies of these sizes, of which some say, by number, where they stand, are those that were placed last, and
        nothing was gathered since."""
        placed, self._reserved = self._reserved, None
        if placed is None or placed[0] != self.gathered_end or placed[1] != sizes:
            return False
        return all(placed[2][number] == position for number, position in told)

    def gather(self, sizes: Sequence[int]) -> None:
        """Bodies of these sizes are to be appended behind what was gathered before."""
        if self._gathered_end is None:
            self._gathered_behind = self.end
        self._gathered_end = self._walk(sizes, self.gathered_end)[-1]

    @property
    def ends_where_it_did(self) -> bool:
        """Whether the log ends where it did when the first of what was gathered came."""
        return self._gathered_end is None or self._gathered_behind == self.end

    def nothing_gathered(self) -> None:
        """What was is appended, or will not be."""
        self._gathered_end = None

    @property
    def waiting_bytes(self) -> int:
        """Of what is not readable yet, what is gathered among it."""
        return self.gathered_end - self.readable[1]

    # The log

    def took(self, step: PersistThenSend) -> None:
        """The core has changed its log, and `step` is on its way to the disk."""
        if step.snapshot is not None:
            index, self.end = step.snapshot.last_index, position_in(step.snapshot)
            self._cut(index)
            self._ends.append(Stretch(index, self.end, None))
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
            self._ends.append(Stretch(first + taken, position, rest.part(0, count)))
            taken += count
            self.end = self._ends[-1].end_of(first + taken - 1)

    def reached(self, index: int) -> bool:
        """What is decided and durable reaches up to there now. Whether that is further than before. Raises LogDamaged."""
        if index <= self.readable[0]:
            return False
        while self._ends and self._ends[0].last_index < index:
            self._ends.popleft()
        before = self.readable[1]
        self.readable = index, self._end_of(index)
        assert self.readable[1] >= before, f"what was readable up to {before} ends at {self.readable[1]} now"
        return True

    def _cut(self, index: int) -> None:
        while self._ends and self._ends[-1].last_index >= index:
            last = self._ends.pop()
            if last.block is not None and last.first_index < index:
                self._ends.append(last._replace(block=last.block.part(0, index - last.first_index)))

    def _end_of(self, index: int) -> int:
        """Of an entry behind what is readable, or the last one of that."""
        if index == self.readable[0]:
            return self.readable[1]
        if self._ends and index >= self._ends[0].first_index:
            stretch = self._ends[0] if self._ends[0].holds(index) else self._ends[-1]
            assert stretch.holds(index), f"nobody asks for the end of entry {index}, before the last ones"
            return stretch.end_of(index)
        return self._disk.end_of(index)

    def _walk(self, sizes: Iterable[int], end: int) -> list[int]:
        """Where entries with bodies of these sizes end in a log that ends at `end`."""
        wholes = [ENTRY_HEADER_BYTES + size for size in sizes]
        if self._disk.start_of(sum(wholes), end) == end:  # no file ends between them
            return list(accumulate(wholes, initial=end))[1:]
        ends: list[int] = []
        for whole in wholes:
            end = self._disk.start_of(whole, end) + whole
            ends.append(end)
        return ends


class Positions:
    """Those of the log that `core` and `disk` hold."""

    def __init__(self, core: Raft, disk: EntryLog) -> None:
        self._core = core
        self._disk = disk
        self._known = NO_INDEX, 0
        """An entry that is decided, and where it ends."""

    def of(self, index: int) -> int:
        """Bytes from the beginning of the data files to the decided entry `index`. Raises LogDamaged."""
        durable = self._core.durable_index
        if index <= durable:
            return self._disk.stored_unit(index).position
        at, end = self._known
        if not durable <= at < index:
            at, end = durable, self._end_of(durable)
        start = end
        for next_index in range(at + 1, index + 1):  # what the disk lacks is in memory
            size = ENTRY_HEADER_BYTES + len(self._core.log.entry(next_index).body)
            start = self._disk.start_of(size, end)
            end = start + size
        self._known = index, end
        return start

    def if_sound(self, index: int) -> int | None:
        """None where `of` raises."""
        try:
            return self.of(index)
        except LogDamaged:
            return None

    def _end_of(self, index: int) -> int:
        begin = self._disk.begin
        return begin.position if index <= begin.index else self._disk.stored_unit(index).end
