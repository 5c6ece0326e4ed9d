"""The file that records where a log begins if not at 0: retention has moved the beginning, or the log was copied from a master
that holds nothing older.

Invariant: the file is written before the log's first byte (also if the log begins at 0 again) and before the first segment is
deleted. Without a readable file the log begins at 0. So if the first segment begins above the recorded offset, the log has
lost its beginning."""

from __future__ import annotations

from mqruntime.smallfiles import SmallFiles

BEGINNING_FILE = "logBeginning"


class LogStartFile:
    """The log start file of one store."""

    def __init__(self, files: SmallFiles) -> None:
        self._files = files
        self._offset = 0

    async def load(self) -> int:
        """Return the recorded offset. Raises OSError."""
        text = (await self._files.read(BEGINNING_FILE) or b"").strip()
        self._offset = int(text) if text.isdigit() else 0
        return self._offset

    async def note(self, begins: int, ends: int) -> None:
        """If the log is empty, record durably that its first byte is written at `begins`. Raises OSError."""
        if begins == ends and begins != self._offset:
            await self._save(begins)

    async def moves_up(self, begins: int) -> None:
        """Record `begins` durably, before retention deletes the log below it. Raises OSError."""
        if begins > self._offset:
            await self._save(begins)

    async def _save(self, begins: int) -> None:
        await self._files.replace(BEGINNING_FILE, b"%d\n" % begins)
        self._offset = begins
