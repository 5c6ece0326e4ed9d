"""Chunks of this member's newest snapshot, for followers.

Invariant: the bytes are in memory once, while they are being sent. A follower that asks for a chunk of an older snapshot gets
the first chunk of the newest one. A snapshot that is gone or unreadable stops nothing: another one is made."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from dledger.raft.actions import LoadChunk
from dledger.raft.errors import SnapshotDamaged
from dledger.raft.membership import encode_configurations
from dledger.raft.progress import Chunk
from dledger.raft.snapshot import Snapshot
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure
from mqruntime.slices import crc32_by_turns

logger = logging.getLogger("dledger")


class SnapshotSender:
    """`read` returns the newest snapshot. A chunk has at most `chunk_bytes`. `remake` orders a new snapshot, and returns
    when it is time to read again."""

    def __init__(
        self,
        read: Callable[[], Awaitable[Snapshot | None]],
        chunk_bytes: int,
        *,
        remake: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._read = read
        self._chunk_bytes = chunk_bytes
        self._remake = remake
        self._clock = clock
        self._failure = RepeatedFailure()
        self._kept: Snapshot | None = None
        self._check = 0

    async def chunk(self, load: LoadChunk) -> Chunk | None:
        """None if the snapshot could not be read.

        Raises: SnapshotUnknown."""
        kept = self._kept
        if kept is None or kept.last_index != load.index:
            why: object = "its file is gone"
            try:
                kept = await self._read()
            except (SnapshotDamaged, OSError) as error:
                kept, why = None, error
            if kept is None:
                if self._failure.failed(str(why), self._clock.monotonic_ms()):
                    logger.error(
                        "the snapshot that a member needs cannot be read; another one is made",
                        extra=fields(peer=load.peer, why=why),
                    )
                await self._remake()
                return None
            self._failure.recovered(self._clock.monotonic_ms())
            self._kept, self._check = kept, await crc32_by_turns(kept.state)
        offset = load.offset if load.index == kept.last_index else 0
        data = bytes(memoryview(kept.state)[offset : offset + self._chunk_bytes])
        if offset + len(data) == len(kept.state):
            self._kept = None
        members = encode_configurations(kept.configurations)
        return Chunk(kept.last_index, kept.last_term, len(kept.state), self._check, offset, data, members)
