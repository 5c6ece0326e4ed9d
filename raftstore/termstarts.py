"""Where the terms of a member's log begin, told as a plain log tells its epochs.

Invariant: a term is told once its first entry is on this disk, and begins where that entry stands: at the same place on every
member, for one leader made all entries of a term."""

from __future__ import annotations

from dledger.node.node import DLedgerNode
from epochfile.entry import EpochEntry
from epochfile.history import EpochHistory

TOLD_MAX = 100
"""Of the newest: a log may have grown for years."""


class TermStarts:
    """Of the log of `node`, from the disk; kept until a term begins or a file goes."""

    def __init__(self, node: DLedgerNode) -> None:
        self._node = node
        self._known: tuple[tuple[int, int], EpochHistory] = ((-1, -1), EpochHistory())

    @property
    def history(self) -> EpochHistory:
        """Empty before the log is open. Raises LogDamaged."""
        core = self._node.core
        if core is None:
            return EpochHistory()
        log = core.log
        if log.last_index == log.prev_index:
            return EpochHistory()
        last_term, first = log.term_and_its_first_index(log.last_index)
        if first > core.durable_index:
            return self._read(core.durable_index)
        state = log.prev_index, last_term
        if self._known[0] != state:
            self._known = state, self._read(log.last_index)
        return self._known[1]

    def _read(self, index: int) -> EpochHistory:
        core, disk = self._node.core, self._node.store.log
        assert core is not None and disk is not None
        found: list[EpochEntry] = []
        while index > core.log.prev_index and len(found) < TOLD_MAX:
            term, first = core.log.term_and_its_first_index(index)
            found.append(EpochEntry(term, disk.stored_unit(first).position))
            index = first - 1
        return EpochHistory(reversed(found))
