"""Keeps the reported confirmed offsets in a small file, for the next process of this controller.

Invariant: the file is never ahead of the reports, and encoding it never blocks the event loop for long. If the file cannot be
read or written, knowledge is lost, but no election is rejected."""

from __future__ import annotations

import asyncio
import logging

from controller.holdings import CheckCode, Holdings, HoldingsDamaged
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure
from mqruntime.smallfiles import SmallFiles

logger = logging.getLogger(__name__)

FILE = "holdings.json"
SAVE_EVERY_MS = 5_000
ROWS_A_TURN = 200


class HoldingsFile:
    """The table and its file."""

    def __init__(self, files: SmallFiles, check_code: CheckCode, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._failure = RepeatedFailure()
        self._changed = asyncio.Event()
        self.holdings = Holdings(check_code, self._changed.set)

    async def load(self) -> None:
        """Load the file of an earlier process; a damaged file counts as missing."""
        try:
            data = await self._files.read(FILE)
            if data is not None:
                self.holdings.restore(data)
        except (OSError, HoldingsDamaged) as error:
            logger.warning(
                "confirmed offsets of brokers not loaded",
                extra=fields(file=FILE, why=error, hint="the file will be replaced"),
            )

    async def run(self) -> None:
        """Save changes, until cancelled."""
        while True:
            await self._changed.wait()
            await self.save()
            await asyncio.sleep(SAVE_EVERY_MS / 1000)

    async def save(self) -> None:
        """Write the file if the table changed since the last call."""
        if not self._changed.is_set():
            return
        self._changed.clear()
        try:
            await self._files.replace(FILE, await self._encoded())
        except OSError as error:
            if self._failure.failed(error.errno, self._clock.monotonic_ms()):
                logger.warning("confirmed offsets of brokers not saved, retrying", extra=fields(why=error))
            self._changed.set()
        else:
            self._failure.recovered(self._clock.monotonic_ms())

    async def _encoded(self) -> bytes:
        """All rows. They may be encoded at different moments of the call, because rows are never compared with each other."""
        keys, rows = self.holdings.keys(), list[bytes]()
        for start in range(0, len(keys), ROWS_A_TURN):
            rows += self.holdings.rows(keys[start : start + ROWS_A_TURN])
            await asyncio.sleep(0)
        return b"[" + b", ".join(rows) + b"]"
