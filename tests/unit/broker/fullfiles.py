"""Small files in memory, on a disk that can be full."""

from __future__ import annotations

import errno

from tests.support.doubles import MemoryFiles


class Files(MemoryFiles):
    """With `full` set no file can be replaced; only existing files can be overwritten."""

    full = False

    async def replace(self, name: str, data: bytes | bytearray) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", name)
        await super().replace(name, data)

    async def overwrite(self, name: str, data: bytes) -> None:
        assert name in self.content
        await super().overwrite(name, data)
