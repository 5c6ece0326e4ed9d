"""A Raft-mode broker's store made into one of controller mode: the same messages at the same queue offsets, in a new folder.

Invariant: the store that is read is not changed. The new one gets its epochs last, and under controllers no broker starts on a
log that has none: so one that a crash left half made is refused."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from epochfile.file import EpochFile
from epochfile.history import EpochHistory
from messagestore.settings import StoreSettings
from messagestore.store import MessageStore
from mqruntime.log import fields
from mqruntime.runtime import Runtime
from raftstore.messagelog import MessageLog
from raftstore.placing import stretches

logger = logging.getLogger("raftstore")

EPOCH = 0
"""Before the first that controllers give."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """The log that was made."""

    begin: int
    end: int
    messages: int


async def adopt(
    log: MessageLog,
    tables: Mapping[str, bytes],
    runtime: Runtime,
    settings: StoreSettings,
    epoch_file: str,
) -> Adopted:
    """`log` was read to its end before, and is whole; `runtime`'s root is empty. `tables` are small files by name. All is on
    disk on return. Raises StoreError, OSError: the root is to be emptied again."""
    begin, messages = log.census.begin, log.census.messages
    failures: list[BaseException] = []
    store = MessageStore(runtime, settings, on_fatal=failures.append)
    await store.start()
    try:
        await _fill(store, log, begin, messages)
    finally:
        await store.stop()
    if failures:
        raise failures[0]
    for name, content in tables.items():
        await runtime.files.replace(name, content)
    await EpochFile(runtime.files, epoch_file).store(EpochHistory([(EPOCH, begin)]))
    return Adopted(begin, store.max_offset(), messages)


async def _fill(store: MessageStore, log: MessageLog, begin: int, messages: int) -> None:
    """As a slave's log is filled, and read by the same dispatch. OSError where there are not so many messages."""
    await store.begin_empty_at(begin)
    end = begin
    for stretch in stretches(log.messages(), store.segment_size_bytes, begin):
        store.write_view(end, len(stretch))[:] = stretch
        end += len(stretch)
        store.advance(end)
        store.set_confirm_offset(end)
        while store.dispatch():
            pass
        if not end % store.segment_size_bytes:
            logger.info("segment taken over", extra=fields(end=end, messages=log.census.messages))
        await asyncio.sleep(0)  # what was written is flushed meanwhile
    if store.dispatched_offset() < end:
        raise OSError(errno.ENOSPC, "no room for all entries of the consume queues and the index")
    if log.census.messages != messages:
        raise OSError(errno.EIO, f"the log reads otherwise than a moment ago: {log.census.damage}")
