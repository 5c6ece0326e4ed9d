"""The checkpoint file follows the commits, at most once an interval.

Invariant: what it says is durable here when it is written; nothing waits for it, so a full disk delays it and the next one says
more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dledger.storage.store import Store
from mqruntime.diskfull import RetriedWrite

logger = logging.getLogger(__name__)


class Checkpointing:
    """`due` is called when one is to be made, with `save`."""

    def __init__(self, store: Store, interval_ms: int, due: Callable[[], None]) -> None:
        self._store = store
        self._interval_ms = interval_ms
        self._due = due
        self._timer: asyncio.TimerHandle | None = None
        name = store.checkpoint_file.name
        self._write = RetriedWrite(logger, f"{name} cannot be written, trying on", server="controller")

    def note(self) -> None:
        """Something was decided."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval_ms / 1000, self._is_due)

    def _is_due(self) -> None:
        self._timer = None
        self._due()

    async def save(self, durable: Callable[[], int], decided: Callable[[], int]) -> None:
        """`durable` tells how far the log is decided and on the own disk, `decided` how far it is decided. Raises OSError."""
        await self._store.sync_index()
        index = durable()
        written = await self._write.attempt(self._store.save_checkpoint(index))
        if not written or index < decided():
            self.note()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
