"""Whether a request may have waited while this process stood still: frozen with its host, stopped, or held by its own work.

Others acted for it meanwhile: they elected a successor, and clients said to that one what undoes what waits here.

Invariant: what a socket held when the process went on is late, however much later it is read, and so is all that comes within
AWAKE_MS after that; a request that waited here through it is late, too."""

from __future__ import annotations

import logging

from mqruntime.clock import Clock
from mqruntime.log import fields
from remoting.peer import Peer

logger = logging.getLogger("broker.forwarding")

LOOK_MS = 200
"""How often `look` is called."""
LATE_MS_MAX = 500
"""A look that is later than this comes after a nap; no election takes less."""
AWAKE_MS = 1_000


class Naps:
    """Of one process. `number` is that of the last one."""

    def __init__(self, clock: Clock) -> None:
        self.number = 0
        self._clock = clock
        self._looked_ms = clock.monotonic_ms()
        self._awake_ms = -1
        """Requests that come from then on are not late."""

    def look(self) -> int:
        """Note whether the process has just stood still; the time, monotonic ms."""
        now_ms = self._clock.monotonic_ms()
        missed_ms = now_ms - self._looked_ms - LOOK_MS
        self._looked_ms = now_ms
        if missed_ms > LATE_MS_MAX:
            self.number += 1
            self._awake_ms = now_ms + AWAKE_MS
            logger.warning("this broker stood still", extra=fields(ms=missed_ms))
        return now_ms

    def is_late(self, peer: Peer) -> bool:
        """Whether what `peer` brings now may have waited through a nap."""
        now_ms = self.look()
        behind_ms = peer.behind_since_ms
        return now_ms < self._awake_ms or (behind_ms is not None and behind_ms < self._awake_ms)
