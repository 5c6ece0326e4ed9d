"""What a member's own index says of its log: which entries stand where. It lies in files of its own, so what rotted in the data
is known there still.

Invariant: what it does not say, or what cannot be read of it, counts for nothing."""

from __future__ import annotations

from bisect import bisect_left

from dledger.node.node import DLedgerNode
from dledger.raft.errors import LogDamaged
from dledger.storage.entry import IndexUnit, synced_before
from dledger.storage.entrylog import EntryLog
from raftstore.mending import Around


class OwnIndex:
    """Of the log of `node`, which is open when anything is asked."""

    def __init__(self, node: DLedgerNode) -> None:
        self._node = node

    @property
    def _log(self) -> EntryLog:
        log = self._node.store.log
        assert log is not None
        return log

    def has(self, unit: IndexUnit) -> bool:
        """Whether just that entry stands there."""
        return self._log.unit(unit.index) == unit

    def closes_at(self, position: int, left: int) -> bool:
        """Whether the last entry of a file ends there, `left` bytes before the file does. Raises LogDamaged."""
        log = self._log
        indexes = range(log.begin.index + 1, log.end_index + 1)
        number = bisect_left(indexes, position, key=lambda index: self._unit(index).position)
        behind = self._unit(indexes[number]).position if number < len(indexes) else log.end
        return number > 0 and self._unit(indexes[number - 1]).end == position and behind == position + left

    def at(self, position: int) -> IndexUnit | None:
        """Of the entry that begins there; None for none. Raises LogDamaged."""
        log = self._log
        indexes = range(log.begin.index + 1, log.end_index + 1)
        number = bisect_left(indexes, position, key=lambda index: self._unit(index).position)
        unit = self._unit(indexes[number]) if number < len(indexes) else None
        return unit if unit is not None and unit.position == position else None

    def around(self, index: int) -> Around:
        """What is written around entry `index`. Raises LogDamaged."""
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
            raise LogDamaged(self._log.where, f"its index says nothing of entry {index}")
        return unit
