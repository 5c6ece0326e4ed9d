"""A member's index of its log, with the positions of entries. The index has its own files, so it survives corrupt data files.

Invariant: an entry that is missing or unreadable in the index proves nothing."""

from __future__ import annotations

from bisect import bisect_left

from dledger.node.node import DLedgerNode
from dledger.raft.errors import LogDamaged
from dledger.storage.entry import IndexUnit, synced_before
from dledger.storage.entrylog import EntryLog
from raftstore.mending import Around


class OwnIndex:
    """Index of the log of `node`, which is open at each call."""

    def __init__(self, node: DLedgerNode) -> None:
        self._node = node

    @property
    def _log(self) -> EntryLog:
        log = self._node.store.log
        assert log is not None
        return log

    def has(self, unit: IndexUnit) -> bool:
        """Whether the index holds exactly this entry."""
        return self._log.unit(unit.index) == unit

    def closes_at(self, position: int, left: int) -> bool:
        """Whether the last entry of a file ends at `position`, `left` bytes before the file does. Raises LogDamaged."""
        log = self._log
        indexes = range(log.begin.index + 1, log.end_index + 1)
        number = bisect_left(indexes, position, key=lambda index: self._unit(index).position)
        behind = self._unit(indexes[number]).position if number < len(indexes) else log.end
        return number > 0 and self._unit(indexes[number - 1]).end == position and behind == position + left

    def at(self, position: int) -> IndexUnit | None:
        """The entry that begins at `position`; None if no entry begins there. Raises LogDamaged."""
        log = self._log
        indexes = range(log.begin.index + 1, log.end_index + 1)
        number = bisect_left(indexes, position, key=lambda index: self._unit(index).position)
        unit = self._unit(indexes[number]) if number < len(indexes) else None
        return unit if unit is not None and unit.position == position else None

    def around(self, index: int) -> Around:
        """The data around entry `index`. Raises LogDamaged."""
        log = self._log
        behind = log.unit(index + 1) if index < log.end_index else None
        check, count = log.check_of(index - 1), -1
        if index - 1 > log.begin.index:
            count = synced_before(log.data.rest_of_file(log.stored_unit(index - 1).position))
        size = 0 if behind is None else behind.size
        return Around(
            check, count, b"" if behind is None else bytes(log.data.rest_of_file(behind.position)[:size])
        )

    def _unit(self, index: int) -> IndexUnit:
        unit = self._log.unit(index)
        if unit is None:
            raise LogDamaged(self._log.where, f"its index is missing entry {index}")
        return unit
