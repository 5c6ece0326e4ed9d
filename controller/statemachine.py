"""The replicated state as the consensus log drives it.

Invariant: applying is total: an entry that is no event of ours is logged and changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable

from controller.events import Event, decode
from controller.state import ReplicasState
from dledger.actions import Role
from mqruntime.log import fields

logger = logging.getLogger(__name__)


class ReplicasStateMachine:
    """Who listens hears of each event after it, on every controller, also when the log is replayed at start."""

    def __init__(self) -> None:
        self.state = ReplicasState()
        self._on_applied: list[Callable[[int, Event], None]] = []
        self._on_role_change: list[Callable[[Role, int], None]] = []

    def on_applied(self, listener: Callable[[int, Event], None]) -> None:
        """`listener` gets the index of each entry and its event."""
        self._on_applied.append(listener)

    def on_role_change(self, listener: Callable[[Role, int], None]) -> None:
        """`listener` gets each role of this member and the term."""
        self._on_role_change.append(listener)

    def apply(self, index: int, body: bytes) -> None:
        event = decode(body)
        if event is None:
            logger.warning("entry is no event", extra=fields(index=index, size=len(body)))
            return
        self.state.apply(event)
        for listener in self._on_applied:
            listener(index, event)

    def role_changed(self, role: Role, term: int) -> None:
        for listener in self._on_role_change:
            listener(role, term)
