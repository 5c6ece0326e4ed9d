"""Where decided entries stand in this member's data files, told also before its own disk has them.

Invariant: a position that was told never changes: what is decided is not cut, and where an entry goes follows from the sizes of
those before it."""

from __future__ import annotations

from dledger.raft.entries import NO_INDEX
from dledger.raft.errors import LogDamaged
from dledger.raft.raft import Raft
from dledger.storage.entry import ENTRY_HEADER_BYTES
from dledger.storage.entrylog import EntryLog


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
