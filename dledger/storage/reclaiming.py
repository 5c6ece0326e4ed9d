"""Possible beginnings of a log whose first entries a snapshot covers: the beginnings of its data files.

Invariant: all entries behind the given one stay in the log. The log begins only where its first entry confirms the check value
of the entry before, which is deleted: otherwise that first entry could neither be read nor repaired. But for that entry only
headers are read, outside the event loop."""

from __future__ import annotations

import logging

from dledger.raft.errors import LogDamaged
from dledger.raft.snapshot import Begin
from dledger.storage.entry import (
    ENTRY_HEADER_BYTES,
    INDEX_UNIT,
    IndexUnit,
    decode_entry,
    index_header,
    read_index_unit,
    stored_check,
)
from dledger.storage.entrylog import EntryLog

logger = logging.getLogger(__name__)


async def begin_up_to(log: EntryLog, index: int) -> Begin:
    """The latest possible beginning behind entry `index` or an earlier one; the present beginning if there is no other. Raises
    OSError."""
    found = log.begin
    for position in range(log.data.begin + log.data.file_bytes, log.data.end, log.data.file_bytes):
        unit = await first_of_file(log, position)
        if unit is None or not log.begin.index < unit.index - 1 <= index:
            break
        try:
            found = await begin_before(log, unit)
        except LogDamaged as error:  # the files before a later beginning go with it
            logger.warning("%s does not begin at %d for now: %s", log.where, position, error)
    return found


async def begin_with_file(log: EntryLog, position: int) -> Begin:
    """The beginning at `position`, where a data file starts with an entry of the log. Raises LogDamaged, OSError."""
    unit = await first_of_file(log, position)
    if unit is None or unit.index <= log.begin.index:
        name = log.data.name_of(position // log.data.file_bytes)
        raise LogDamaged(f"{log.data.where}/{name}", "no entry is at its beginning")
    return await begin_before(log, unit)


async def first_of_file(log: EntryLog, position: int) -> IndexUnit | None:
    """The index unit of the entry at `position`, made from its header."""
    unit = index_header(await log.data.read(position, position + ENTRY_HEADER_BYTES))
    return unit if unit is not None and unit.position == position else None


async def begin_before(log: EntryLog, unit: IndexUnit) -> Begin:
    """The beginning of a log whose first entry is that of `unit`. Raises LogDamaged, OSError."""
    before = unit.index - 1
    start = before * INDEX_UNIT.size
    last = read_index_unit(memoryview(await log.index.read(start, start + INDEX_UNIT.size)), before)
    header = b"" if last is None else await log.data.read(last.position, last.position + ENTRY_HEADER_BYTES)
    if last is None or index_header(header) != last:
        raise log.unreadable(before)
    check = stored_check(header)
    if decode_entry(log.data.rest_of_file(unit.position), unit.position, check) is None:
        raise log.unreadable(before)
    return Begin(before, last.term, unit.position, check)
