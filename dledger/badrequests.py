"""Requests that say nothing this member understands, as an operator is told of them.

Invariant: a host is told of at most once in `REMIND_MS`, and of HOSTS_MAX hosts it is known when; whoever can reach the port
cannot fill the disk with lines."""

from __future__ import annotations

import logging

from mqruntime.clock import Clock

REMIND_MS = 60_000
HOSTS_MAX = 256
REASON_LENGTH_MAX = 200


class BadRequests:
    """Of one service, told through its `logger`."""

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._told_ms: dict[str, int] = {}  # by host, the newest last

    def refused(self, address: str, code: int, why: Exception) -> None:
        """A request `code` that came from `address` is refused."""
        host, now_ms = address.rpartition(":")[0], self._clock.monotonic_ms()
        told_ms = self._told_ms.get(host)
        if told_ms is not None and now_ms - told_ms < REMIND_MS:
            return
        if told_ms is None and len(self._told_ms) >= HOSTS_MAX:
            oldest, told_ms = next(iter(self._told_ms.items()))
            if now_ms - told_ms < REMIND_MS:
                return  # so many hosts were told of just now
            del self._told_ms[oldest]
        self._told_ms.pop(host, None)
        self._told_ms[host] = now_ms
        reason = str(why)[:REASON_LENGTH_MAX]
        self._logger.warning("peer=%s request=%d refused, told once a minute: %s", address, code, reason)
