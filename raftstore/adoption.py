"""Adoption of a Raft-mode store into controller mode: the same messages at the same queue offsets, in a new folder.

Invariant: the source store is not changed. The epoch file of the new store is written last. Under controllers no broker starts
on a log without epochs, so a store that a crash left incomplete is rejected."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from epochfile.file import EpochFile
from epochfile.history import EpochHistory
from messagestore.store.messagestore import MessageStore
from messagestore.store.settings import StoreSettings
from mqruntime.log import fields
from mqruntime.runtime import Runtime
from raftstore.messagelog import MessageLog
from raftstore.placing import stretches

logger = logging.getLogger("raftstore")

EPOCH = 0
"""The epoch of the adopted log; the first epoch that controllers grant is higher."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """The new log: its start, its end and the number of its messages."""

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
    """Adopt `log`, which was read to its end before and is complete. `runtime`'s root is empty; `tables` maps the names of
    small files to their contents. The new store is on disk on return.

    Raises: StoreError or OSError; the caller then empties the root again."""
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
    """Fill the log like that of a slave, and dispatch it. Raises OSError if the number of messages differs."""
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
        await asyncio.sleep(0)  # the store's flush task runs meanwhile
    if store.dispatched_offset() < end:
        raise OSError(errno.ENOSPC, "no room for all entries of the consume queues and the index")
    if log.census.messages != messages:
        raise OSError(errno.EIO, f"the log reads differently than a moment ago: {log.census.damage}")
