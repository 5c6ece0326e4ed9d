"""Export of another store's messages to a Raft-mode broker's store: its log as a leader of one term writes it.

Invariant: each message is in an entry, with the matching physical offset; queue offsets and store times stay. An
incomplete export must not be used: Java takes a log that ends early for a complete one."""

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
"""The term of a Java group with a single election."""
ENTRIES_A_SYNC = 1024


async def give_back(
    messages: Iterable[PlacedMessage],
    tables: Mapping[str, bytes],
    runtime: Runtime,
    member: str,
    file_bytes: int,
) -> int:
    """The number of entries in the log of `member`, one a message, in files of `file_bytes`, which each of them fits
    into. `runtime`'s root is empty; `tables` are small files by name. All is on disk on return.

    Raises: OSError: empty the root again."""
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
    await runtime.files.replace(ABORT_FILE, b"")  # or Java takes the missing queues for complete
    return last + 1


def entry_of(message: PlacedMessage, log: EntryLog) -> Entry:
    """The next entry of `log`, with the message moved to it."""
    position = log.start_of(ENTRY_HEADER_BYTES + len(message.content), log.end)
    body = moved(message.content, message.facts, physical_offset(position))
    return Entry(log.end_index + 1, TERM, body)
