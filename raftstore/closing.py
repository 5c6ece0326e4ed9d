"""Closes a plain log (the commit log from before Raft mode) with a BLANK, a record that fills the rest of its last file.
Upstream does the same. Then a DLedger log continues at the plain log's end.

Invariant: no record is changed. Until the log is closed and its queues and checkpoint are on disk, a broker without Raft mode
can start on the store, even after a crash. Closing the log again is harmless. Every complete record counts as committed, even
above the confirm offset. This is safe, because the first start in Raft mode needs all members with identical records: every
member holds every record, acknowledged or not."""

from __future__ import annotations

import asyncio
import errno

from messagestore.store.messagestore import MessageStore
from messagestore.store.settings import StoreSettings
from mqruntime.runtime import Runtime


async def close_plain_log(runtime: Runtime, settings: StoreSettings) -> None:
    """Close the log. Raises OSError and the errors of a MessageStore's start."""
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
