"""The replicated state as the consensus log drives it.

Invariant: applying is total: an entry that is no event of ours is logged and changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable

from controller.events import Event, decode
from controller.state import ReplicasState
from mqruntime.log import fields

logger = logging.getLogger(__name__)


class ReplicasStateMachine:
    """`on_applied(index, event)` runs after each event, on every controller, also when the log is replayed at
    start."""

    def __init__(self, on_applied: Callable[[int, Event], None]) -> None:
        self.state = ReplicasState()
        self._on_applied = on_applied

    def apply(self, index: int, body: bytes) -> None:
        event = decode(body)
        if event is None:
            logger.warning("entry is no event", extra=fields(index=index, size=len(body)))
            return
        self.state.apply(event)
        self._on_applied(index, event)
