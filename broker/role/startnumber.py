"""Keeps a number that grows with each start of a store, and every few seconds while its broker is registered, so that
controllers can tell a disk that was set back to an earlier image: it comes with a number that they have heard before.

    startNumber     twenty digits, then + where controllers have accepted the number, else -, and a newline

Invariant: `number` is durable before anybody hears it, and it grows only once it was accepted: an old disk does not outgrow
what was heard by starts and time that no controller sees. A file that is missing or damaged counts as 0: controllers that know
better take the disk for one that was set back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from mqruntime.diskfull import RetriedWrite
from mqruntime.smallfiles import SmallFiles

logger = logging.getLogger("broker.startnumber")

FILE = "startNumber"
DIGITS = 20
ACCEPTED = b"+"
NUMBER_MAX = 2**63 - 1
DRAW_EVERY_MS = 2_000
"""An image of a store that is open, which is older than this and two heartbeats, is known as one, too."""


class KeptStartNumber:
    """The number of one store."""

    def __init__(self, files: SmallFiles) -> None:
        self._files = files
        self._is_there = False
        self._is_accepted = False
        self._registered = asyncio.Event()
        self._write = RetriedWrite(logger, f"{FILE} cannot be written, trying on", any_error=True)
        self.number = 0
        """0 until the first is drawn."""

    async def open(self) -> None:
        """Draws the number of this start, or takes that of one before which nobody accepted; on a full disk, too, where the
        file is there. OSError."""
        data = await self._files.read(FILE)
        self._is_there = data is not None
        number, accepted = decode(data or b"")
        if number and not accepted:
            self.number = number
        else:
            await self._store(number + 1)

    async def draw(self, *, above: int = 0) -> None:
        """A greater number than the present one and `above`. OSError."""
        await self._store(min(max(self.number, above), NUMBER_MAX - 1) + 1)

    async def _store(self, wanted: int) -> None:
        encoded = b"%0*d%s\n" % (DIGITS, wanted, ACCEPTED if self._is_accepted else b"-")
        if self._is_there:
            await self._files.overwrite(FILE, encoded)
        else:
            await self._files.replace(FILE, encoded)
            self._is_there = True
        self.number = wanted

    def registered(self) -> None:
        """Controllers have accepted the present number."""
        self._is_accepted = True
        self._registered.set()

    async def run(self, is_registered: Callable[[], bool]) -> None:
        """Draws once a number was accepted, and again and again while the broker is registered; what the disk refuses is tried
        again."""
        await self._registered.wait()
        while True:
            if is_registered():
                await self._write.perform(self.draw)
            await asyncio.sleep(DRAW_EVERY_MS / 1000)


def decode(data: bytes) -> tuple[int, bool]:
    """The number, 0 unless all of it is there, and whether it was accepted."""
    digits, mark = data[:DIGITS], data[DIGITS : DIGITS + 1]
    number = int(digits) if len(digits) == DIGITS and digits.isdigit() and mark else 0
    return (number, mark == ACCEPTED) if number < NUMBER_MAX else (0, False)
