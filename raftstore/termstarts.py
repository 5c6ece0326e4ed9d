"""The newest terms of a member's log, at most TERMS_MAX, as an epoch history.

Invariant: a term is included once its first entry is on this disk. The term begins at the position of this entry. The position
is the same on every member, because one leader made all entries of the term."""

from __future__ import annotations

from dledger.node.node import DLedgerNode
from epochfile.entry import EpochEntry
from epochfile.history import EpochHistory

TERMS_MAX = 100
"""Only so many of the newest terms are returned, because a log may have grown for years."""


class TermStarts:
    """The terms of the log of `node`. They are read from disk, and cached until a term begins or a file is deleted."""

    def __init__(self, node: DLedgerNode) -> None:
        self._node = node
        self._known: tuple[tuple[int, int], EpochHistory] = ((-1, -1), EpochHistory())

    @property
    def history(self) -> EpochHistory:
        """The terms as an epoch history; empty before the log is open. Raises LogDamaged."""
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
        while index > core.log.prev_index and len(found) < TERMS_MAX:
            term, first = core.log.term_and_its_first_index(index)
            found.append(EpochEntry(term, disk.stored_unit(first).position))
            index = first - 1
        return EpochHistory(reversed(found))
