"""The parts of this member's newest snapshot, for those whom it sends it to.

Invariant: the bytes are in memory while somebody is sent them, once for all, and not longer; who asks for a part of a snapshot
that is not the one at hand gets the beginning of the newest. One that is gone or unreadable ends nothing: it is made anew."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from dledger.raft.actions import LoadChunk
from dledger.raft.errors import SnapshotDamaged
from dledger.raft.membership import encode_stated
from dledger.raft.progress import Chunk
from dledger.raft.snapshot import Snapshot
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure
from mqruntime.slices import crc32_by_turns

logger = logging.getLogger("dledger")


class SnapshotSender:
    """`read` gives the newest snapshot; a part has `chunk_bytes` at most. `remake` has one made of what is applied, and returns
    when it is worth to look again."""

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
        """None where the snapshot could not be read. Raises SnapshotUnknown."""
        kept = self._kept
        if kept is None or kept.last_index != load.index:
            why: object = "its file is gone"
            try:
                kept = await self._read()
            except (SnapshotDamaged, OSError) as error:
                kept, why = None, error
            if kept is None:
                if self._failure.failed(str(why), self._clock.monotonic_ms()):
                    told = fields(peer=load.peer, why=why)
                    logger.error(
                        "the snapshot that a member lacks cannot be read, it is made anew", extra=told
                    )
                await self._remake()
                return None
            self._failure.recovered(self._clock.monotonic_ms())
            self._kept, self._check = kept, await crc32_by_turns(kept.state)
        offset = load.offset if load.index == kept.last_index else 0
        data = bytes(memoryview(kept.state)[offset : offset + self._chunk_bytes])
        if offset + len(data) == len(kept.state):
            self._kept = None
        members = encode_stated(kept.stated)
        return Chunk(kept.last_index, kept.last_term, len(kept.state), self._check, offset, data, members)
