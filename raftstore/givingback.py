"""Export of another store's messages to a Raft-mode broker's store. The log is written as a leader of a single term would write
it.

Invariant: each message is in an entry and has the physical offset of its new place; queue offsets and store times stay the
same. An incomplete export must not be used: a Java broker takes a log that ends early for a complete log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from dledger.raft.actions import Vote
from dledger.raft.entries import Entry
from dledger.raft.settings import DLedgerSettings
from dledger.storage.checkpoint import CheckpointFile, LedgerCheckpoint
from dledger.storage.entry import ENTRY_HEADER_BYTES
from dledger.storage.entrylog import EntryLog
from dledger.storage.hardstate import TermFile
from dledger.storage.store import FOLDER_PREFIX
from messagestore.store.brokerstore import ABORT_FILE
from mqruntime.runtime import Runtime
from raftstore.framing import PlacedMessage, moved, physical_offset

TERM = 0
"""The term of a Java group after its first election."""
ENTRIES_A_SYNC = 1024


async def give_back(
    messages: Iterable[PlacedMessage],
    tables: Mapping[str, bytes],
    runtime: Runtime,
    member: str,
    file_bytes: int,
) -> int:
    """Write the log of `member`, one entry for each message, and return the number of entries. Each entry fits into a file of
    `file_bytes`. `runtime`'s root is empty; `tables` maps the names of small files to their contents. The store is on disk on
    return.

    Raises: OSError; the caller then empties the root again."""
    folder = f"{FOLDER_PREFIX}{member}"
    settings = DLedgerSettings(data_file_bytes=file_bytes, entry_bytes_max=file_bytes - 64)
    log = EntryLog(runtime.segments.subdirectory(folder), settings, folder)
    await log.open()
    try:
        for message in messages:
            await log.append([entry_of(message, log)])
            if not log.end_index % ENTRIES_A_SYNC:
                await log.sync()
                await asyncio.sleep(0)
        await log.sync()
        await log.sync_index()
    finally:
        log.close()
    for name, content in tables.items():
        await runtime.files.replace(name, content)
    last = log.end_index
    await CheckpointFile(runtime.files, f"{folder}/checkpoint").store(LedgerCheckpoint(last, last))
    await TermFile(runtime.files, f"{folder}/currterm", members="").store(Vote(TERM))
    await runtime.files.replace(ABORT_FILE, b"")  # so that Java rebuilds the queues
    return last + 1


def entry_of(message: PlacedMessage, log: EntryLog) -> Entry:
    """The next entry of `log`, with the message as its body; the message gets its new physical offset."""
    position = log.start_of(ENTRY_HEADER_BYTES + len(message.content), log.end)
    body = moved(message.content, message.facts, physical_offset(position))
    return Entry(log.end_index + 1, TERM, body)
