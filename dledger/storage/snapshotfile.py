"""The newest snapshot on disk: the file `snapshot`, replaced as a whole.

Invariant: a snapshot is durable before the data that it replaces is changed. An unreadable snapshot is an error, because a log
that begins after a snapshot is useless without the snapshot. A folder with the name `snapshot` is from a Java controller from
5.4.0 on, with DLedger 0.3.2 or later. Its snapshots have no state, so the folder counts as no snapshot (`read_snapshot`)."""

from __future__ import annotations

import asyncio

from dledger.raft.snapshot import Snapshot
from dledger.storage.snapshot import Origin, SnapshotCounts, decode_snapshot, encode_snapshot
from mqruntime.smallfiles import SmallFiles

JAVA_FOLDER = "java"
"""Java's folder is moved to this folder next to it when the first snapshot is written here. This folder is never read."""


async def read_snapshot(files: SmallFiles, name: str) -> bytes | None:
    """The content of the file `name`; None if there is no file, or if it is Java's folder. Raises OSError."""
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
        """The stored snapshot; None if there is none. Raises SnapshotDamaged, SnapshotUnknown, OSError."""
        data = await read_snapshot(self.files, self.name)
        if data is None:
            return None
        snapshot = await decode_snapshot(self.name, data)
        self.counts.has(snapshot.last_index, len(data))
        return snapshot

    async def store(self, snapshot: Snapshot, origin: Origin) -> None:
        """Stores and counts `snapshot`; durable on return. On OSError the old file is unchanged."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        size = await self.replace(snapshot)
        self.counts.wrote(origin, snapshot.last_index, size, loop.time() - began_s)

    async def replace(self, snapshot: Snapshot) -> int:
        """Stores a snapshot that is already counted. Returns the size of its file."""
        data = await encode_snapshot(snapshot)
        try:
            await self.files.replace(self.name, data)
        except IsADirectoryError:
            await self._move_javas_folder()
            await self.files.replace(self.name, data)
        return len(data)

    async def _move_javas_folder(self) -> None:
        member, _, part = self.name.rpartition("/")
        await self.files.discard(f"{member}/{JAVA_FOLDER}/{part}")  # left by an earlier take-over
        await self.files.move(self.name, f"{member}/{JAVA_FOLDER}")
