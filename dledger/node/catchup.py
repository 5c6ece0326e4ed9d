"""What this member sends to followers that are behind: chunks of its newest snapshot, and old entries that are read from the
disk.

If a follower asks for a chunk of an older snapshot, it gets the first chunk of the newest snapshot. If a snapshot is gone or
unreadable, a new snapshot is made. Before a corrupt entry, the follower gets the entries that precede it, and each heartbeat
repeats the read; other followers are not affected. A corrupt index unit (an entry's record in the index file) is rebuilt at
once from the data file.

Invariant: a snapshot's bytes are in memory once, and only while they are being sent. A corrupt entry or an unreadable snapshot
stops no member."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from dledger.raft.actions import Load, LoadChunk
from dledger.raft.errors import EntryUnreadable, SnapshotDamaged
from dledger.raft.membership import encode_configurations
from dledger.raft.progress import Chunk, Loaded, Unreadable
from dledger.raft.snapshot import Snapshot
from dledger.storage.entrylog import EntryLog, read_entries
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure
from mqruntime.repeatedfailures import RepeatedFailures
from mqruntime.slices import crc32_by_turns

logger = logging.getLogger("dledger")


class SnapshotSender:
    """Reads chunks of the newest snapshot. `read()` returns the newest snapshot. A chunk has at most `chunk_bytes`. `remake()`
    orders a new snapshot, and returns when it is time to read again."""

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
        """The chunk for `load`; None if the snapshot could not be read.

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


class CatchupReader:
    """Calls `on_unreadable(index)` each time that an entry could not be read."""

    def __init__(self, clock: Clock, on_unreadable: Callable[[int], None]) -> None:
        self._clock = clock
        self._on_unreadable = on_unreadable
        self._failures = RepeatedFailures()
        self.unreadable = 0
        """Failed reads since the start."""

    async def read(self, log: EntryLog, load: Load, bytes_max: int) -> Loaded:
        try:
            entries = await read_entries(log, load.first_index, load.entries_max, bytes_max)
        except EntryUnreadable as error:
            if log.rebuild_index_unit(error.index):
                logger.warning("%s: the index of entry %d was corrupt and is rebuilt", log.where, error.index)
                return ()
            return self._failed(error, error.index, load.peer)
        except OSError as error:
            return self._failed(error, load.first_index, load.peer)
        return entries

    def _failed(self, error: Exception, index: int, peer: str) -> Unreadable:
        self.unreadable += 1
        if self._failures.failed((index, peer), self._clock.monotonic_ms()):
            logger.error(
                "%s is missing entry %d, which cannot be read here; this member sends it nothing behind that entry. A "
                "Raft-mode broker gets it repaired by the others; elsewhere transfer the leadership and empty this member: %s",
                peer,
                index,
                error,
            )
        self._on_unreadable(index)
        return Unreadable(index)
