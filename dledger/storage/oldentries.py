"""Reads of entries that are on the disk and no longer in memory, outside the event loop.

Invariant: returned entries are in the log as they were written, each check value compared; a read during a cut returns nothing
rather than parts of two logs. One call reads at most what its limits allow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dledger.raft.entries import Entry
from dledger.storage.entry import (
    ENTRY_HEADER_BYTES,
    INDEX_UNIT,
    IndexUnit,
    decode_entry,
    read_index_unit,
    stored_check,
)
from dledger.storage.entrylog import EntryLog


async def read_entries(log: EntryLog, first: int, entries_max: int, bytes_max: int) -> list[Entry]:
    """Entries on the disk from `first` on, in order: at most `entries_max`, with bodies of `bytes_max` together, but at least
    one; none beyond the end of a data file, and none from the first corrupt one on. Nothing if the log was cut meanwhile, or
    its beginning moved: ask again.

    Raises: EntryUnreadable: `first` is not as it was written; OSError."""
    cuts, begin = log.cuts, log.begin
    last = min(first + entries_max - 1, log.end_index)
    assert begin.index < first <= last, f"the disk does not hold entry {first}"
    before = max(first - 1, begin.index + 1)
    units = units_of(await log.index.read(before * INDEX_UNIT.size, (last + 1) * INDEX_UNIT.size), before)
    check: int | None = begin.check
    if first > before and units:
        check = await check_at(log, units.pop(0).position)
    units = fitting(units, bytes_max, log.data.file_bytes)
    entries: list[Entry] = []
    if units and check is not None and units[-1].end <= log.data.end:
        number, start = divmod(units[0].position, log.data.file_bytes)
        size = units[-1].end - units[0].position
        file = log.data.file(number)
        if file is not None:
            entries = await file.examine(start, start + size, partial(decoded, units, check))
    if log.cuts != cuts:
        return []
    if not entries:
        raise log.unreadable(first)
    return entries


async def check_at(log: EntryLog, position: int) -> int | None:
    """The check value of the entry at `position`."""
    header = await log.data.read(position, position + ENTRY_HEADER_BYTES)
    return stored_check(memoryview(header)) if len(header) == ENTRY_HEADER_BYTES else None


def units_of(data: bytes, first: int) -> list[IndexUnit]:
    """The index units in `data` of the entries from `first` on, up to the first impossible one."""
    units: list[IndexUnit] = []
    view = memoryview(data)
    for at in range(0, len(data), INDEX_UNIT.size):
        unit = read_index_unit(view[at:], first + len(units))
        if unit is None:
            break
        units.append(unit)
    return units


def fitting(units: Sequence[IndexUnit], bytes_max: int, file_bytes: int) -> list[IndexUnit]:
    """The first units whose entries follow each other in one file, with bodies of `bytes_max` together; a larger entry
    alone."""
    taken: list[IndexUnit] = []
    size = 0
    for unit in units:
        size += unit.size - ENTRY_HEADER_BYTES
        if taken and size > bytes_max:
            break
        end = taken[-1].end if taken else unit.position
        if unit.position != end or unit.position % file_bytes + unit.size > file_bytes:
            break
        if taken and unit.position // file_bytes != taken[0].position // file_bytes:
            break
        taken.append(unit)
    return taken


def decoded(units: Sequence[IndexUnit], check: int, data: bytes) -> list[Entry]:
    """The entries of `units` in `data`, up to the first that is not as it was written."""
    entries: list[Entry] = []
    view = memoryview(data)
    start = units[0].position
    for unit in units:
        stored = decode_entry(view[unit.position - start :], unit.position, check)
        if stored is None or stored.size != unit.size:
            break
        if stored.entry.index != unit.index or stored.entry.term != unit.term:
            break
        entries.append(stored.entry)
        check = stored.check
    return entries
