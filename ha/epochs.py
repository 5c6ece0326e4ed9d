"""The epoch history of this broker's log: the file's content, in memory.

Invariant: `history` equals the file, except after a failed write until `settle`. It changes after the file has, one
change at a time. A file is believed only if it is bound to this log."""

from __future__ import annotations

import asyncio

from epochfile.file import EpochFile
from epochfile.history import EpochHistory
from ha.epochbinding import KeptBinding
from ha.errors import EpochHistoryMissing
from ha.log import ReplicatedLog


class KeptEpochs:
    def __init__(self, file: EpochFile) -> None:
        self._file = file
        self._lock = asyncio.Lock()
        self._in_doubt = False  # a write failed: the file may hold more than `history`
        self.binding = KeptBinding(file)
        self.history = EpochHistory()

    @property
    def file_name(self) -> str:
        return self._file.name

    async def load(self, log: ReplicatedLog) -> None:
        """Raises EpochFileUnreadable, EpochFileForeign, OSError."""
        self.history = await self._file.load(lambda history: self.binding.check(log, history))

    async def store(self, history: EpochHistory) -> None:
        """Durable on return; no write if nothing changes. Raises OSError."""
        async with self._lock:
            await self._store(history)

    async def truncate_prefix(self, offset: int) -> None:
        """Drop the epochs that ended at or before `offset`, the log's start after retention. Raises OSError."""
        async with self._lock:
            await self._store(self.history.truncate_prefix(offset))

    async def settle(self) -> None:
        """Write the file again if it may differ from `history`; to be called before bytes are appended under it.
        Raises OSError."""
        async with self._lock:
            await self._store(self.history)

    async def seal(self, log: ReplicatedLog) -> None:
        """See KeptBinding.seal; nothing changes meanwhile."""
        async with self._lock:
            await self.binding.seal(log)

    async def _store(self, history: EpochHistory) -> None:
        if history != self.history or self._in_doubt:
            self._in_doubt = True
            await self.binding.store(history)
            await self._file.store(history)
            self.history, self._in_doubt = history, False

    def within(self, log: ReplicatedLog) -> EpochHistory:
        """The epochs that begin within the log; the file may be ahead of a log that lost its tail.

        Raises: EpochHistoryMissing if the log has data and no epoch."""
        log_end = log.max_offset()
        history = EpochHistory(entry for entry in self.history if entry.start_offset <= log_end)
        if len(history) == 0 and log_end > log.min_offset():
            raise EpochHistoryMissing(log_end)
        return history
