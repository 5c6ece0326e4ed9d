"""Detection of two brokers with one broker id. Each new connection of one broker ends the connection of the other.

Invariant: an id is reported only after more than REPLACED_MAX replacements, each at most WINDOW_MS after the one before. So a
single broker that reconnects now and then is not reported."""

from __future__ import annotations

import logging

from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure

WINDOW_MS = 10_000
REPLACED_MAX = 3

logger = logging.getLogger("ha.master")


class DuplicateIds:
    """Ids whose connections replace each other repeatedly."""

    def __init__(self) -> None:
        self._replaced: dict[
            int, tuple[int, int]
        ] = {}  # by id: time of the last replacement, number of replacements without a pause
        self._failures: dict[int, RepeatedFailure] = {}

    def replaced(self, broker_id: int, former: str, newer: str, now_ms: int) -> None:
        """Note that a new connection of this id replaced a live one."""
        last_ms, times = self._replaced.get(broker_id, (now_ms, 0))
        times = times + 1 if now_ms - last_ms <= WINDOW_MS else 1
        self._replaced[broker_id] = now_ms, times
        if times > REPLACED_MAX and self._failures.setdefault(broker_id, RepeatedFailure()).failed(
            broker_id, now_ms
        ):
            logger.warning(
                "two brokers replicate under one id",
                extra=fields(
                    id=broker_id,
                    addresses=sorted({former, newer}),
                    hint="one store is a copy of the other: stop the copy, delete its brokerIdentity, start it again, and "
                    "restart the other broker, whose address it took",
                ),
            )
