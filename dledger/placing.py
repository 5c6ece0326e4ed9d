"""Where the entries of a log stand that has each at the same position in the data files of every member, told before they are
written.

Invariant: where an entry goes follows from the sizes of those before it, so what `place` says comes true if nothing else is
appended first; what is `readable` is decided and on the own disk, and its end never falls. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from dledger.actions import PersistThenSend
from dledger.entry import ENTRY_HEADER_BYTES
from dledger.snapshot import position_in


class Disk(Protocol):
    """What is asked of a log on disk."""

    end: int

    def start_of(self, size: int, end: int) -> int: ...

    def end_of(self, index: int) -> int: ...


class Placing:
    """Of the log that `disk` has, all of it durable, and that is decided up to `committed_index`. What the core does to it
    in memory is told by `took`; what stands in memory alone has its end here, of the rest the disk's index tells."""

    def __init__(self, disk: Disk, committed_index: int) -> None:
        self._disk = disk
        self._ends: deque[tuple[int, int]] = deque()
        """Entries that came since, with where they end; of those that are readable the last at most."""
        self.readable = committed_index, disk.end_of(committed_index)
        """The last entry that is decided and durable here, and where it ends."""
        self.end = disk.end
        """Where the log ends that is in memory."""
        self._gathered_end: int | None = None
        self._gathered_behind = disk.end
        self._placed: tuple[int, list[int], list[int]] | None = None
        """What `place` told last: behind which end, of which sizes, and where."""

    # Proposers

    @property
    def gathered_end(self) -> int:
        """Where the log will end once what was gathered is appended."""
        return self.end if self._gathered_end is None else self._gathered_end

    def place(self, sizes: Sequence[int]) -> list[int]:
        """Where entries with bodies of these sizes stand if they come next, behind what was gathered."""
        ends = self._walk(sizes, self.gathered_end)
        positions = [end - size - ENTRY_HEADER_BYTES for size, end in zip(sizes, ends, strict=True)]
        self._placed = self.gathered_end, list(sizes), positions
        return positions

    def keeps_its_word(self, bodies: Sequence[bytes], told: Sequence[int | None]) -> bool:
        """Whether `bodies`, which say that they stand at `told`, are those that were placed last, and nothing was gathered
        since."""
        placed, self._placed = self._placed, None
        if placed is None or placed[0] != self.gathered_end:
            return False
        same = all(position in (None, wanted) for position, wanted in zip(told, placed[2], strict=False))
        return same and placed[1] == [len(body) for body in bodies]

    def gather(self, bodies: Sequence[bytes]) -> None:
        """They are to be appended behind what was gathered before."""
        if self._gathered_end is None:
            self._gathered_behind = self.end
        self._gathered_end = self._walk([len(body) for body in bodies], self.gathered_end)[-1]

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
            self._ends.append((index, self.end))
        if step.cut_from is not None:
            self._cut(step.cut_from)
            self.end = self._end_of(step.cut_from - 1)
        ends = self._walk([len(entry.body) for entry in step.entries], self.end)
        self._ends.extend(zip((entry.index for entry in step.entries), ends, strict=True))
        self.end = ends[-1] if ends else self.end

    def reached(self, index: int) -> bool:
        """What is decided and durable reaches up to there now. Whether that is further than before. Raises LogDamaged."""
        if index <= self.readable[0]:
            return False
        while self._ends and self._ends[0][0] < index:
            self._ends.popleft()
        before = self.readable[1]
        self.readable = index, self._end_of(index)
        assert self.readable[1] >= before, f"what was readable up to {before} ends at {self.readable[1]} now"
        return True

    def _cut(self, index: int) -> None:
        while self._ends and self._ends[-1][0] >= index:
            self._ends.pop()

    def _end_of(self, index: int) -> int:
        """Of an entry behind what is readable, or the last one of that."""
        if index == self.readable[0]:
            return self.readable[1]
        if self._ends and index >= self._ends[0][0]:
            last = self._ends[0] if index == self._ends[0][0] else self._ends[-1]
            assert last[0] == index, f"nobody asks for the end of entry {index}, before the last one"
            return last[1]
        return self._disk.end_of(index)

    def _walk(self, sizes: Iterable[int], end: int) -> list[int]:
        """Where entries with bodies of these sizes end in a log that ends at `end`."""
        ends: list[int] = []
        for size in sizes:
            whole = ENTRY_HEADER_BYTES + size
            end = self._disk.start_of(whole, end) + whole
            ends.append(end)
        return ends
