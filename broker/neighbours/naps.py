"""Detects requests that may have waited while this process was paused: frozen with its host, by a signal, or by its own work.
Meanwhile others may have elected a successor, to which clients sent later requests.

Invariant: requests that a socket held when the process continued are late, however much later they are read, and so are those
that come within AWAKE_MS after that; a request that waited here through it is late, too."""

from __future__ import annotations

import logging

from mqruntime.clock import Clock
from mqruntime.log import fields
from remoting.peer import Peer

logger = logging.getLogger("broker.forwarding")

LOOK_MS = 200
"""How often `look` is called."""
LATE_MS_MAX = 500
"""A look delayed by more follows a pause; an election takes longer than this."""
AWAKE_MS = 1_000


class Naps:
    """Pauses of one process. `number` is that of the last one."""

    def __init__(self, clock: Clock) -> None:
        self.number = 0
        self._clock = clock
        self._looked_ms = clock.monotonic_ms()
        self._awake_ms = -1
        """From when on new requests are not late."""

    def look(self) -> int:
        """Note whether the process was paused just now. Returns the time, monotonic ms."""
        now_ms = self._clock.monotonic_ms()
        missed_ms = now_ms - self._looked_ms - LOOK_MS
        self._looked_ms = now_ms
        if missed_ms > LATE_MS_MAX:
            self.number += 1
            self._awake_ms = now_ms + AWAKE_MS
            logger.warning("this broker was paused", extra=fields(ms=missed_ms))
        return now_ms

    def is_late(self, peer: Peer) -> bool:
        """Whether requests that `peer` sends now may have waited through a pause."""
        now_ms = self.look()
        behind_ms = peer.behind_since_ms
        return now_ms < self._awake_ms or (behind_ms is not None and behind_ms < self._awake_ms)
