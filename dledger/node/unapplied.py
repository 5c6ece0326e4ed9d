"""A log without a state machine: what is decided counts as applied at once, and nothing is read for it.

Invariant: `applied_index` is what is known to be decided; at a start that is what the disk knew."""

from __future__ import annotations

from collections.abc import Callable

from dledger.raft.entries import NO_INDEX
from dledger.raft.log import RaftLog
from dledger.raft.snapshot import Snapshot
from dledger.storage.entrylog import EntryLog


class Unapplied:
    """In the place of an Applier. `on_decided` gets the last index each time that more is decided, then `on_turn` is called."""

    replays = False

    def __init__(self, *, on_decided: Callable[[int], None], on_turn: Callable[[], None]) -> None:
        self.applied_index = NO_INDEX
        self._on_decided = on_decided
        self._on_turn = on_turn

    @property
    def decided_index(self) -> int:
        return self.applied_index

    def begin(
        self, log: RaftLog, disk: EntryLog, decided_index: int, snapshot: Snapshot | None = None
    ) -> None:
        """Nobody is told of what was decided before."""
        self.decide(decided_index)

    def restore(self, snapshot: Snapshot) -> None:
        """A decision of what it ends with follows, and is all that is to be known."""

    def decide(self, index: int) -> None:
        self.applied_index = index
        self._on_decided(index)
        self._on_turn()

    async def replayed(self) -> None:
        """At once."""

    def close(self) -> None:
        """Nothing is under way."""
