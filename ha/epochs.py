"""The epoch history of this broker's log: the content of the epoch file, in memory.

Invariant: `history` equals the file, except between a failed write and `settle`. `history` changes only after the file has
changed, and changes never overlap. A file is used only if it is bound to this log."""

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
        """Load the file. Raises EpochFileUnreadable, EpochFileForeign, OSError."""
        self.history = await self._file.load(lambda history: self.binding.check(log, history))

    async def store(self, history: EpochHistory) -> None:
        """Store `history`; durable on return. Nothing is written if nothing changes. Raises OSError."""
        async with self._lock:
            await self._store(history)

    async def truncate_prefix(self, offset: int) -> None:
        """Drop the epochs that ended at or before `offset`, which is the log's start after retention. Raises OSError."""
        async with self._lock:
            await self._store(self.history.truncate_prefix(offset))

    async def settle(self) -> None:
        """Write the file again if it may differ from `history`. Call this before bytes of this history are appended. Raises
        OSError."""
        async with self._lock:
            await self._store(self.history)

    async def seal(self, log: ReplicatedLog) -> None:
        """See KeptBinding.seal. The history does not change meanwhile."""
        async with self._lock:
            await self.binding.seal(log)

    async def _store(self, history: EpochHistory) -> None:
        if history != self.history or self._in_doubt:
            self._in_doubt = True
            await self.binding.store(history)
            await self._file.store(history)
            self.history, self._in_doubt = history, False

    def within(self, log: ReplicatedLog) -> EpochHistory:
        """The epochs that begin within the log. If the log lost its tail, the file may have later epochs.

        Raises: EpochHistoryMissing if the log has data and no epoch."""
        log_end = log.max_offset()
        history = EpochHistory(entry for entry in self.history if entry.start_offset <= log_end)
        if len(history) == 0 and log_end > log.min_offset():
            raise EpochHistoryMissing(log_end)
        return history
