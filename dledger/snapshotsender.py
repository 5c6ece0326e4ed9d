"""The parts of this member's newest snapshot, for those whom it sends it to.

Invariant: the bytes are in memory while somebody is sent them, once for all, and not longer; who asks for a part of a snapshot
that is not the one at hand gets the beginning of the newest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from zlib import crc32

from dledger.actions import LoadChunk
from dledger.installing import Chunk
from dledger.membership import encode_stated
from dledger.snapshot import Snapshot


class SnapshotSender:
    """`read` gives the newest snapshot; a part has `chunk_bytes` at most."""

    def __init__(self, read: Callable[[], Awaitable[Snapshot | None]], chunk_bytes: int) -> None:
        self._read = read
        self._chunk_bytes = chunk_bytes
        self._kept: Snapshot | None = None
        self._check = 0

    async def chunk(self, load: LoadChunk) -> Chunk:
        """Raises SnapshotDamaged, SnapshotUnknown, OSError."""
        kept = self._kept
        if kept is None or kept.last_index != load.index:
            kept = await self._read()
            assert kept is not None, "a log that begins later has a snapshot before it"
            self._kept, self._check = kept, crc32(kept.state)
        offset = load.offset if load.index == kept.last_index else 0
        data = kept.state[offset : offset + self._chunk_bytes]
        if offset + len(data) == len(kept.state):
            self._kept = None
        members = encode_stated(kept.stated)
        return Chunk(kept.last_index, kept.last_term, len(kept.state), self._check, offset, data, members)
