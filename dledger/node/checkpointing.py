"""Writes the commit index to the checkpoint file, at most once in an interval.

Invariant: when a commit index is written, all entries up to this index are durable here. Nothing waits for the write, so a full
disk only delays it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dledger.storage.store import Store
from mqruntime.diskfull import RetriedWrite

logger = logging.getLogger(__name__)


class Checkpointing:
    """Calls `due` when it is time to call `save`."""

    def __init__(self, store: Store, interval_ms: int, due: Callable[[], None]) -> None:
        self._store = store
        self._interval_ms = interval_ms
        self._due = due
        self._timer: asyncio.TimerHandle | None = None
        name = store.checkpoint_file.name
        self._write = RetriedWrite(
            logger, f"{name} cannot be written, it is tried again", server="controller"
        )

    def note(self) -> None:
        """Called when the commit index has moved."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval_ms / 1000, self._is_due)

    def _is_due(self) -> None:
        self._timer = None
        self._due()

    async def save(self, durable: Callable[[], int], committed: Callable[[], int]) -> None:
        """Saves the commit index. `durable()` returns the index up to which entries are committed and on this disk,
        `committed()` the commit index.

        Raises: OSError."""
        await self._store.sync_index()
        index = durable()
        written = await self._write.attempt(self._store.save_checkpoint(index))
        if not written or index < committed():
            self.note()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
