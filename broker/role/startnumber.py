"""Keeps a number that grows with each start of a store, and every few seconds while it is open, so that controllers can tell
a disk that was set back to an earlier image: it comes with a number that they have heard before.

    startNumber     twenty digits and a newline

Invariant: `number` is durable before anybody hears it, and no two processes of one disk ever had the same one. A file that is
missing or damaged counts as 0: controllers that know better take the disk for one that was set back."""

from __future__ import annotations

import asyncio
import logging

from mqruntime.diskfull import RetriedWrite
from mqruntime.smallfiles import SmallFiles

logger = logging.getLogger("broker.startnumber")

FILE = "startNumber"
DIGITS = 20
NUMBER_MAX = 2**63 - 1
DRAW_EVERY_MS = 2_000
"""An image of a store that is open, which is older than this and two heartbeats, is known as one, too."""


class KeptStartNumber:
    """The number of one store."""

    def __init__(self, files: SmallFiles) -> None:
        self._files = files
        self._is_there = False
        self._write = RetriedWrite(logger, f"{FILE} cannot be written, trying on", any_error=True)
        self.number = 0
        """0 until the first is drawn."""

    async def open(self) -> None:
        """Draws the number of this start; on a full disk, too, where the file is there. OSError."""
        data = await self._files.read(FILE)
        self._is_there = data is not None
        self.number = decode(data or b"")
        await self.draw()

    async def draw(self, *, above: int = 0) -> None:
        """A greater number than the present one and `above`. OSError."""
        wanted = min(max(self.number, above), NUMBER_MAX - 1) + 1
        encoded = b"%0*d\n" % (DIGITS, wanted)
        if self._is_there:
            await self._files.overwrite(FILE, encoded)
        else:
            await self._files.replace(FILE, encoded)
            self._is_there = True
        self.number = wanted

    async def run(self) -> None:
        """Draws again and again; what the disk refuses is tried again."""
        while True:
            await asyncio.sleep(DRAW_EVERY_MS / 1000)
            await self._write.perform(self.draw)


def decode(data: bytes) -> int:
    """0 unless all digits are there."""
    digits = data[:DIGITS]
    number = int(digits) if len(digits) == DIGITS and digits.isdigit() else 0
    return number if number <= NUMBER_MAX else 0
