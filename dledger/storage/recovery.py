"""Recovery of a log when a member starts: its end, its terms, and its last entries.

Invariant: entries are read whole and in order, from the last one that the checkpoint vouches for, or from the log's beginning
if it vouches for none or that one is missing; behind the last whole entry there are only bytes that a crash may have torn. So a
start takes as long as the writes since the last checkpoint, and memory for the recent entries only."""

from __future__ import annotations

import asyncio
import logging

from dledger.raft.entries import Entry
from dledger.raft.errors import EMPTY_AND_RESTART, LogDamaged
from dledger.raft.log import RaftLog, TermRuns, TermsFall, runs_of
from dledger.raft.membership import ConfigurationHistory
from dledger.storage.entry import INDEX_UNIT, StoredEntry, decode_entry, encode_index_unit, stored_check
from dledger.storage.entrylog import EntryLog

logger = logging.getLogger(__name__)

ENTRIES_A_SLICE = 1024
"""Other tasks run between two slices."""


async def recover(
    log: EntryLog, synced_index: int, recent_bytes_max: int, history: ConfigurationHistory
) -> RaftLog:
    """Moves `log` from its beginning to its end. `synced_index` is from the checkpoint; `history` takes the members in the
    entries that are read. Raises MembersUnknown, OSError."""
    older = begin_at(log, synced_index) if synced_index > log.begin.index else None
    if older is None:
        older = TermRuns(log.begin.index, log.begin.term)
    held = RaftLog(older=older, recent_bytes_max=recent_bytes_max)
    while entries := take_some(log, held.last_term):
        held.append(entries)
        history.take(entries)
        held.forget(log.end_index)
        await asyncio.sleep(0)
    return held


def begin_at(log: EntryLog, index: int) -> TermRuns | None:
    """Moves `log` to before entry `index`, and returns the terms of all entries before. None, and `log` stays at its beginning,
    if the entry or its index is missing: an operator may have removed the index, and Java or an older version may have
    continued the log and its checkpoint."""
    try:
        position = log.stored_unit(index).position
        check = log.check_of(index - 1)
        before = TermRuns(log.begin.index, log.begin.term)
        runs = runs_of(index - 1, lambda asked: log.believed_unit(asked).term, before)
        stored = entry_at(log, position, check)
    except (LogDamaged, TermsFall):
        stored = None
    if stored is None or not follows(stored.entry, index, runs.last_term):
        logger.warning(
            "%s: the whole log is read, because its index up to entry %d cannot be used", log.where, index
        )
        return None
    log.end, log.end_index, log.check = position, index - 1, check
    return runs


def take_some(log: EntryLog, last_term: int) -> list[Entry]:
    """Reads the next entries, and rewrites their index units."""
    entries: list[Entry] = []
    units = bytearray()
    first = log.end_index + 1
    fit = (log.index.file_bytes - first * INDEX_UNIT.size % log.index.file_bytes) // INDEX_UNIT.size
    for index in range(first, first + min(fit, ENTRIES_A_SLICE)):
        position = log.skip_blank(log.end)
        stored = entry_at(log, position, log.check)
        if stored is None or not follows(stored.entry, index, last_term):
            break
        last_term = stored.entry.term
        entries.append(stored.entry)
        units += encode_index_unit(stored.entry, position)
        log.end = position + stored.size
        log.end_index = index
        log.check = stored.check
        log.batch_count = stored.batch_position + 1
    if entries:
        log.rewrite_index_units(first, bytes(units))
    return entries


def entry_at(log: EntryLog, position: int, check: int) -> StoredEntry | None:
    return decode_entry(log.data.rest_of_file(position), position, check)


def follows(entry: Entry, index: int, last_term: int) -> bool:
    return entry.index == index and entry.term >= last_term


def refuse_later_entries(log: EntryLog, last_term: int) -> None:
    """Raises LogDamaged if an intact entry of a later sync follows the log's end. A crash tears only entries of the last sync,
    so such an entry proves that the missing one was durable once: the disk lost it, and continuing could lose committed
    entries. An entry of an older term than the log's last proves nothing: Java leaves the bytes of entries that its leader
    cut."""
    missing = log.end_index + 1
    index, before = missing + 1, log.unit(missing)
    while before is not None and (unit := log.unit(index)) is not None:
        check = stored_check(log.data.rest_of_file(before.position))
        stored = entry_at(log, unit.position, check)
        later = stored is not None and stored.entry.index == index and stored.entry.term >= last_term
        if later and stored is not None and index - stored.batch_position > missing:
            what = f"entry {missing} is unreadable, but entry {index}, written later, is intact"
            raise LogDamaged(log.where, f"{what}: {log.place(log.end)}; {EMPTY_AND_RESTART}")
        index, before = index + 1, unit
