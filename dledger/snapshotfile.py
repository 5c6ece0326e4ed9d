"""The newest snapshot on disk: the file `snapshot`, replaced as a whole.

Invariant: what stands there was durable before anything that it replaces was touched; what cannot be read is refused, for a
log that begins behind a snapshot is worth nothing without it."""

from __future__ import annotations

from dledger.snapshot import Snapshot, decode_snapshot, encode_snapshot
from mqruntime.smallfiles import SmallFiles


class SnapshotFile:
    """`name` is relative to the root of `files`, for example 'dledger-n0/snapshot'."""

    def __init__(self, files: SmallFiles, name: str) -> None:
        self.files = files
        self.name = name

    async def load(self) -> Snapshot | None:
        """None when there is none. Raises SnapshotDamaged, SnapshotUnknown, OSError."""
        data = await self.files.read(self.name)
        return None if data is None else decode_snapshot(self.name, data)

    async def store(self, snapshot: Snapshot) -> None:
        """Durable on return; raises OSError, and what stood there stands there still."""
        await self.files.replace(self.name, encode_snapshot(snapshot))
