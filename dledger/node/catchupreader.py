"""What a leader reads of its own disk for a follower, and finds rotten.

Invariant: it ends nobody. The follower gets what stands before, and is tried again with each beat; the others go on. What
rotted in the index alone, which is derived, is written anew at once."""

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
    """`on_unreadable(index)` hears each time that an entry could not be read."""

    def __init__(self, clock: Clock, on_unreadable: Callable[[int], None]) -> None:
        self._clock = clock
        self._on_unreadable = on_unreadable
        self._failures = RepeatedFailures()
        self.unreadable = 0
        """How often an entry could not be read, since the start."""

    async def read(self, log: EntryLog, load: Load, bytes_max: int) -> Loaded:
        try:
            entries = await read_entries(log, load.first_index, load.entries_max, bytes_max)
        except EntryUnreadable as error:
            if log.unit_made_anew(error.index):
                logger.warning(
                    "%s: the index of entry %d was damaged, and is made anew", log.where, error.index
                )
                return ()
            return self._failed(error, error.index, load.peer)
        except OSError as error:
            return self._failed(error, load.first_index, load.peer)
        return entries

    def _failed(self, error: Exception, index: int, peer: str) -> Unreadable:
        self.unreadable += 1
        if self._failures.failed((index, peer), self._clock.monotonic_ms()):
            logger.error(
                "%s lacks entry %d, which cannot be read here, and gets nothing behind it from this member until it can; the "
                "other members go on. A Raft-mode broker has it mended by them; of another group let another member lead, and "
                "begin this one anew: %s",
                peer,
                index,
                error,
            )
        self._on_unreadable(index)
        return Unreadable(index)
