"""A plain log closed, so that a log of Raft mode goes on where it ends: with a BLANK in its last file, as upstream closes it.

Invariant: no record is touched, and until the log is closed and its queues and checkpoint are on disk the store is one of a
broker without Raft mode, whatever a crash leaves; again it does no harm. All whole records count as decided, whatever was told
to be confirmed of them: a group forms only of members that hold the same ones, and its first start needs all of them, so what
was acknowledged is among these, and what was not is held by all."""

from __future__ import annotations

import asyncio
import errno

from messagestore.settings import StoreSettings
from messagestore.store import MessageStore
from mqruntime.runtime import Runtime


async def close_plain_log(runtime: Runtime, settings: StoreSettings) -> None:
    """Raises what the start of such a store does, OSError."""
    failures: list[BaseException] = []
    store = MessageStore(runtime, settings, on_fatal=failures.append)
    await store.start()
    try:
        await store.end_segment()
        end = store.max_offset()
        store.set_confirm_offset(end)
        more = True
        while more:
            more = store.dispatch()
            await asyncio.sleep(0)
        if store.dispatched_offset() < end:
            raise OSError(errno.ENOSPC, "no room for all entries of the consume queues and the index")
    finally:
        await store.stop()
    if failures:
        raise failures[0]
