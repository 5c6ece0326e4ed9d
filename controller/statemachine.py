"""The state machine of the consensus log: applies events entry by entry, or loads a snapshot.

Invariant: every entry can be applied, because an entry that is no known event is only logged. `state` is one object for the
lifetime of the process. While a snapshot is loaded, `state` keeps its old contents until the snapshot is read to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from controller.events import Event, decode
from controller.state import ReplicasState
from controller.statesnapshot import decoded, encoded
from mqruntime.log import fields

logger = logging.getLogger(__name__)


class ReplicasStateMachine:
    """The state machine. Listeners of events are called on every controller after each event, also during the replay at the
    start. Listeners of snapshots are called once, when a snapshot is loaded."""

    def __init__(self) -> None:
        self.state = ReplicasState()
        self._on_applied: list[Callable[[int, Event], None]] = []
        self._on_loaded: list[Callable[[ReplicasState], None]] = []

    def on_applied(self, listener: Callable[[int, Event], None]) -> None:
        """Call `listener` with the index and the event of each entry."""
        self._on_applied.append(listener)

    def on_loaded(self, listener: Callable[[ReplicasState], None]) -> None:
        """Call `listener` after a snapshot was loaded, with the state from before."""
        self._on_loaded.append(listener)

    def apply(self, index: int, body: bytes) -> None:
        event = decode(body)
        if event is None:
            logger.warning("entry is no event", extra=fields(index=index, size=len(body)))
            return
        self.state.apply(event)
        for listener in self._on_applied:
            listener(index, event)

    def snapshot_save(self) -> Iterator[bytes]:
        """The pieces of a snapshot of the state. No entry may be applied before the last piece is read."""
        return encoded(self.state)

    def snapshot_load(self, data: bytes | bytearray) -> Iterator[None]:
        """Load a snapshot, a slice of the work in each step. The last step replaces the state. Raises SnapshotUnknown."""
        loaded = ReplicasState()
        yield from decoded(data, loaded)
        before = ReplicasState(self.state.replicas, self.state.sync_states)
        self.state.replicas, self.state.sync_states = loaded.replicas, loaded.sync_states
        for listener in self._on_loaded:
            listener(before)
