"""The file that says where a log begins that was fetched from a master whose own begins above 0.

Invariant: the file says so before the log's first byte is there, also where that is 0 again; without it, and where it cannot be
read, a log begins at 0, as its own master's does. So what begins above lost its beginning."""

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
            await self._files.replace(BEGINNING_FILE, b"%d\n" % begins)
            self._offset = begins
