"""The newest snapshot on disk: the file `snapshot`, replaced as a whole.

Invariant: what stands there was durable before anything that it replaces was touched; what cannot be read is refused, for a
log that begins behind a snapshot is worth nothing without it."""

from __future__ import annotations

import asyncio

from dledger.snapshot import Snapshot, decode_snapshot, encode_snapshot
from dledger.snapshotcounts import Origin, SnapshotCounts
from mqruntime.smallfiles import SmallFiles


class SnapshotFile:
    """`name` is relative to the root of `files`, for example 'dledger-n0/snapshot'."""

    def __init__(self, files: SmallFiles, name: str) -> None:
        self.files = files
        self.name = name
        self.counts = SnapshotCounts()

    async def load(self) -> Snapshot | None:
        """None when there is none. Raises SnapshotDamaged, SnapshotUnknown, OSError."""
        data = await self.files.read(self.name)
        if data is None:
            return None
        snapshot = await decode_snapshot(self.name, data)
        self.counts.has(snapshot.last_index, len(data))
        return snapshot

    async def store(self, snapshot: Snapshot, origin: Origin) -> None:
        """Durable on return; raises OSError, and what stood there stands there still."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        size = await self.replace(snapshot)
        self.counts.wrote(origin, snapshot.last_index, size, loop.time() - began_s)

    async def replace(self, snapshot: Snapshot) -> int:
        """The same of one that is counted already; its size in the file."""
        data = await encode_snapshot(snapshot)
        await self.files.replace(self.name, data)
        return len(data)
