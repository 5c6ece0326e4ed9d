"""The file that says where a log begins that does not begin at 0: retention moved its beginning up, or the master that it was
fetched from has no more.

Invariant: the file says so before the log's first byte is there, also where that is 0 again, and before the first segment is
deleted; without it, and where it cannot be read, a log begins at 0. So what begins above that has lost its beginning."""

from __future__ import annotations

from mqruntime.smallfiles import SmallFiles

BEGINNING_FILE = "logBeginning"


class KeptBeginning:
    """That of one store."""

    def __init__(self, files: SmallFiles) -> None:
        self._files = files
        self._offset = 0

    async def load(self) -> int:
        """What the file says, at the start. OSError."""
        text = (await self._files.read(BEGINNING_FILE) or b"").strip()
        self._offset = int(text) if text.isdigit() else 0
        return self._offset

    async def note(self, begins: int, ends: int) -> None:
        """If the log is empty its first byte comes to `begins`, durably on return. OSError."""
        if begins == ends and begins != self._offset:
            await self._save(begins)

    async def moves_up(self, begins: int) -> None:
        """Retention is about to delete what is below `begins`, durably noted on return. OSError."""
        if begins > self._offset:
            await self._save(begins)

    async def _save(self, begins: int) -> None:
        await self._files.replace(BEGINNING_FILE, b"%d\n" % begins)
        self._offset = begins
