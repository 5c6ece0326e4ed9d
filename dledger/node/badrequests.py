"""Requests that say nothing this member understands, as an operator is told of them.

Invariant: a host is told of at most once in `REMIND_MS`, and of HOSTS_MAX hosts it is known when; whoever can reach the port
cannot fill the disk with lines."""

from __future__ import annotations

import logging

from mqruntime.clock import Clock
from mqruntime.repeatedfailures import RepeatedFailures

REMIND_MS = 60_000
HOSTS_MAX = 256
REASON_LENGTH_MAX = 200


class BadRequests:
    """Of one service, told through its `logger`."""

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._hosts = RepeatedFailures(REMIND_MS, HOSTS_MAX)

    def refused(self, address: str, code: int, why: Exception) -> None:
        """A request `code` that came from `address` is refused."""
        if self._hosts.failed(address.rpartition(":")[0], self._clock.monotonic_ms()):
            reason = str(why)[:REASON_LENGTH_MAX]
            self._logger.warning("peer=%s request=%d refused, told once a minute: %s", address, code, reason)
