"""Reads of old entries from the leader's disk, for followers that are behind.

Invariant: a corrupt entry stops no member. The follower gets the entries before it, and each heartbeat repeats the read; other
followers are not affected. A corrupt index unit is rebuilt at once, because the index is derived."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dledger.raft.actions import Load
from dledger.raft.errors import EntryUnreadable
from dledger.raft.progress import Loaded, Unreadable
from dledger.storage.entrylog import EntryLog
from dledger.storage.oldentries import read_entries
from mqruntime.clock import Clock
from mqruntime.repeatedfailures import RepeatedFailures

logger = logging.getLogger(__name__)


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
