"""Entries that are on the disk and in memory no more, read beside the event loop.

Invariant: what is returned stands in the log as it was written, each entry's check value compared; a read that a cut overtook
returns nothing rather than half of two logs. One call reads at most what its limits say, whatever the log holds."""

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
    """Entries of the disk from `first` on, in order: as many as `entries_max` and as have bodies of `bytes_max` together, but
    one at least, none beyond the end of a data file, and none from the first on that is not as it was written. None at all when
    the log was cut, or let its beginning go, meanwhile: ask again for what is there still. Raises EntryUnreadable where `first`
    is not as it was written, OSError."""
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
    """The check value of the entry that stands there."""
    header = await log.data.read(position, position + ENTRY_HEADER_BYTES)
    return stored_check(memoryview(header)) if len(header) == ENTRY_HEADER_BYTES else None


def units_of(data: bytes, first: int) -> list[IndexUnit]:
    """The units in `data` of the entries from `first` on, up to the first that cannot be one."""
    units: list[IndexUnit] = []
    view = memoryview(data)
    for at in range(0, len(data), INDEX_UNIT.size):
        unit = read_index_unit(view[at:], first + len(units))
        if unit is None:
            break
        units.append(unit)
    return units


def fitting(units: Sequence[IndexUnit], bytes_max: int, file_bytes: int) -> list[IndexUnit]:
    """Those at the beginning that stand side by side in one file, with bodies of `bytes_max` together; a larger one alone."""
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
    """The entries in `data` that `units` tell of, up to the first that is not as it was written."""
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
