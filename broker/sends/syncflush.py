"""Flushing before answering (flushDiskType=SYNC_FLUSH): one fdatasync after the other, each for all sends before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from messagestore.store import MessageStore


class SyncFlush:
    """`on_flushed` runs after each flush: what may be answered has moved."""

    def __init__(self, store: MessageStore, on_flushed: Callable[[], None]) -> None:
        self._store = store
        self._on_flushed = on_flushed
        self._grown = asyncio.Event()
        store.on_append(self._grown.set)

    async def run(self) -> None:
        while True:
            await self._grown.wait()
            self._grown.clear()
            await self._store.flush()
            self._on_flushed()
