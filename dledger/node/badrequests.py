"""A log of requests that this member cannot read.

Invariant: a host is logged at most once in `REMIND_MS`, and the last HOSTS_MAX hosts are remembered: a client that can reach
the port cannot fill the disk with lines."""

from __future__ import annotations

import logging

from mqruntime.clock import Clock
from mqruntime.repeatedfailures import RepeatedFailures

REMIND_MS = 60_000
HOSTS_MAX = 256
REASON_LENGTH_MAX = 200


class BadRequests:
    """The log of one service's bad requests."""

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._hosts = RepeatedFailures(REMIND_MS, HOSTS_MAX)

    def refused(self, address: str, code: int, why: Exception) -> None:
        """A request `code` that came from `address` is refused."""
        if self._hosts.failed(address.rpartition(":")[0], self._clock.monotonic_ms()):
            reason = str(why)[:REASON_LENGTH_MAX]
            self._logger.warning(
                "peer=%s request=%d refused, logged once a minute: %s", address, code, reason
            )
