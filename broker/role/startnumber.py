"""A number that increases with each start of a store, and every few seconds while its broker is registered. A disk that was set
back to an earlier image has a lower number than the controllers received before; that is how they detect it.

    startNumber     twenty digits, then + where controllers have accepted the number, else -, and a newline

Invariant: `number` is durable before it is sent, and increases only after controllers have accepted it. So an old disk cannot
exceed the known number by starts, or time, that no controller sees. A missing or damaged file counts as 0, so controllers that
know a higher number treat the disk as set back."""

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
"""An image of an open store is detected, too, if it is older than this time and two heartbeats."""


class KeptStartNumber:
    """The number of one store."""

    def __init__(self, files: SmallFiles) -> None:
        self._files = files
        self._is_there = False
        self._is_accepted = False
        self._registered = asyncio.Event()
        self._write = RetriedWrite(logger, f"{FILE} cannot be written, retrying", any_error=True)
        self.number = 0
        """0 until the first number is drawn."""

    async def open(self) -> None:
        """Draw the number of this start, or use the last number if no controller accepted it. An existing file can be written
        on a full disk, too. Raises OSError."""
        data = await self._files.read(FILE)
        self._is_there = data is not None
        number, accepted = decode(data or b"")
        if number and not accepted:
            self.number = number
        else:
            await self._store(number + 1)

    async def draw(self, *, above: int = 0) -> None:
        """Draw a number above the present number and above `above`. Raises OSError."""
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
        """Record that controllers have accepted the present number."""
        self._is_accepted = True
        self._registered.set()

    async def run(self, is_registered: Callable[[], bool]) -> None:
        """Draw a new number once one was accepted, and periodically while the broker is registered. Failed writes are
        repeated."""
        await self._registered.wait()
        while True:
            if is_registered():
                await self._write.perform(self.draw)
            await asyncio.sleep(DRAW_EVERY_MS / 1000)


def decode(data: bytes) -> tuple[int, bool]:
    """The number, 0 if the file is not complete; and whether it was accepted."""
    digits, mark = data[:DIGITS], data[DIGITS : DIGITS + 1]
    number = int(digits) if len(digits) == DIGITS and digits.isdigit() and mark else 0
    return (number, mark == ACCEPTED) if number < NUMBER_MAX else (0, False)
