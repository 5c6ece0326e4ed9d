"""The state machine of the consensus log: applies events entry by entry, or a snapshot of many at once.

Invariant: applying is total: an entry that is no known event is logged and changes nothing. `state` is one object for
the lifetime of the process, and keeps its old contents until a snapshot is read to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from controller.events import Event, decode
from controller.state import ReplicasState
from controller.statesnapshot import decoded, encoded
from mqruntime.log import fields

logger = logging.getLogger(__name__)


class ReplicasStateMachine:
    """Listeners are called after each event, on every controller, also during the replay at start; for a snapshot
    once, when it is loaded."""

    def __init__(self) -> None:
        self.state = ReplicasState()
        self._on_applied: list[Callable[[int, Event], None]] = []
        self._on_loaded: list[Callable[[ReplicasState], None]] = []

    def on_applied(self, listener: Callable[[int, Event], None]) -> None:
        """`listener` gets the index of each entry and its event."""
        self._on_applied.append(listener)

    def on_loaded(self, listener: Callable[[ReplicasState], None]) -> None:
        """`listener` gets the state as it was before."""
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
        """Pieces of the state as it is now; nothing may be applied before the last one."""
        return encoded(self.state)

    def snapshot_load(self, data: bytes | bytearray) -> Iterator[None]:
        """Load a snapshot, a slice of the work in each step; the last one replaces the state. Raises SnapshotUnknown."""
        loaded = ReplicasState()
        yield from decoded(data, loaded)
        before = ReplicasState(self.state.replicas, self.state.sync_states)
        self.state.replicas, self.state.sync_states = loaded.replicas, loaded.sync_states
        for listener in self._on_loaded:
            listener(before)
