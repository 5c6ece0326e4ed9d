"""Leases of a store: requests of readers outside the broker to keep parts of the log.

Invariant: an expired lease is removed, and an unreadable lease holds nothing. No lease stops the broker."""

from __future__ import annotations

import logging

from messagestore.leases import FOLDER, Lease, LeaseDamaged, decode
from messagestore.log.retention import RetentionHold
from mqruntime.log import fields
from mqruntime.repeatedfailures import RepeatedFailures
from mqruntime.smallfiles import SmallFiles

logger = logging.getLogger("broker.retention")

LEASES_MAX = 1_000
KEPT_AFTER_MS = 60_000  # expired leases stay for this time, so that people can see them


class Leases:
    def __init__(self, files: SmallFiles) -> None:
        self._files = files
        self._damaged = RepeatedFailures()

    async def holds(self, now_ms: int) -> list[RetentionHold]:
        """The holds of the leases that are valid at `now_ms`, wall time. Raises OSError."""
        found: list[RetentionHold] = []
        for name in (await self._files.names(FOLDER))[:LEASES_MAX]:
            data = await self._files.read(name)
            lease = None if data is None else self._read(name, data, now_ms)
            if lease is None:
                continue
            if lease.holds(now_ms):
                found.append(RetentionHold(lease.offset, f"read by {lease.holder}"))
            elif lease.until_ms + KEPT_AFTER_MS < now_ms:
                await self._files.remove(name)
        return found

    def _read(self, name: str, data: bytes, now_ms: int) -> Lease | None:
        try:
            return decode(data)
        except LeaseDamaged as error:
            if self._damaged.failed(name, now_ms):
                logger.warning("lease not readable, it holds nothing", extra=fields(file=name, why=error))
            return None
