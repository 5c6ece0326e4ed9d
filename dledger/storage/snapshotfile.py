"""The newest snapshot on disk: the file `snapshot`, replaced as a whole.

Invariant: a snapshot is durable before anything that it replaces is touched. An unreadable one is refused: a log that begins
behind a snapshot is worth nothing without it. A folder of that name is from a Java controller from 5.4.0 on, with DLedger 0.3.2
or later; its snapshots have no state, so it counts as no snapshot (`read_snapshot`)."""

from __future__ import annotations

import asyncio

from dledger.raft.snapshot import Snapshot
from dledger.storage.snapshot import Origin, SnapshotCounts, decode_snapshot, encode_snapshot
from mqruntime.smallfiles import SmallFiles

JAVA_FOLDER = "java"
"""The folder next to it that Java's folder is moved to when the first snapshot is written here. Nothing is read there."""


async def read_snapshot(files: SmallFiles, name: str) -> bytes | None:
    """The content of the file `name`; None if there is none, or Java's folder. Raises OSError."""
    try:
        return await files.read(name)
    except IsADirectoryError:
        return None


async def java_snapshots(files: SmallFiles, name: str) -> list[str]:
    """The files in Java's folder `name`. Raises OSError."""
    return await files.names(name)


class SnapshotFile:
    """`name` is relative to the root of `files`, for example 'dledger-n0/snapshot'."""

    def __init__(self, files: SmallFiles, name: str) -> None:
        self.files = files
        self.name = name
        self.counts = SnapshotCounts()

    async def load(self) -> Snapshot | None:
        """None if there is none. Raises SnapshotDamaged, SnapshotUnknown, OSError."""
        data = await read_snapshot(self.files, self.name)
        if data is None:
            return None
        snapshot = await decode_snapshot(self.name, data)
        self.counts.has(snapshot.last_index, len(data))
        return snapshot

    async def store(self, snapshot: Snapshot, origin: Origin) -> None:
        """Durable on return. Raises OSError, and the old file is unchanged."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        size = await self.replace(snapshot)
        self.counts.wrote(origin, snapshot.last_index, size, loop.time() - began_s)

    async def replace(self, snapshot: Snapshot) -> int:
        """The same for one that is counted already. Returns its size in the file."""
        data = await encode_snapshot(snapshot)
        try:
            await self.files.replace(self.name, data)
        except IsADirectoryError:
            await self._move_javas_folder()
            await self.files.replace(self.name, data)
        return len(data)

    async def _move_javas_folder(self) -> None:
        member, _, part = self.name.rpartition("/")
        await self.files.discard(f"{member}/{JAVA_FOLDER}/{part}")  # of an earlier take-over
        await self.files.move(self.name, f"{member}/{JAVA_FOLDER}")
