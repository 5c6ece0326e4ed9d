"""Detects requests that may have waited while this process was paused, by a frozen host, by a signal, or by its own work.
During the pause a successor may have been elected, to which clients sent later requests.

Invariant: three kinds of requests are late: requests that were in a socket when the process continued, however much later they
are read; requests that come within AWAKE_MS after the pause; and requests that waited in this process during the pause."""

from __future__ import annotations

import logging

from mqruntime.clock import Clock
from mqruntime.log import fields
from remoting.peer import Peer

logger = logging.getLogger("broker.forwarding")

LOOK_MS = 200
"""The interval at which `look` is called."""
LATE_MS_MAX = 500
"""If `look` is called later than this, there was a pause. An election takes longer than this."""
AWAKE_MS = 1_000


class Naps:
    """The pauses of one process. `number` is the number of the last pause."""

    def __init__(self, clock: Clock) -> None:
        self.number = 0
        self._clock = clock
        self._looked_ms = clock.monotonic_ms()
        self._awake_ms = -1
        """The time from which on new requests are not late."""

    def look(self) -> int:
        """Find out whether the process was paused just now. Returns the time, monotonic ms."""
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
