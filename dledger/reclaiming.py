"""Where a log can begin once a snapshot stands for what is before: at the beginning of one of its data files.

Invariant: all entries behind the given one stay in the log, and nothing but headers is read for it, beside the event loop."""

from __future__ import annotations

from dledger.entry import (
    ENTRY_HEADER_BYTES,
    INDEX_UNIT,
    IndexUnit,
    index_header,
    read_index_unit,
    stored_check,
)
from dledger.errors import LogDamaged
from dledger.log import EntryLog
from dledger.snapshot import Begin


async def begin_up_to(log: EntryLog, index: int) -> Begin:
    """The latest place where the log can begin behind entry `index` or an earlier one; where it begins now, if there is no
    other. Raises LogDamaged, OSError."""
    found = log.begin
    for position in range(log.data.begin + log.data.file_bytes, log.data.end, log.data.file_bytes):
        unit = await first_of_file(log, position)
        if unit is None or not log.begin.index < unit.index - 1 <= index:
            break
        found = await begin_before(log, unit)
    return found


async def begin_with_file(log: EntryLog, position: int) -> Begin:
    """The beginning of the file that starts at `position`, where an entry of the log stands. Raises LogDamaged, OSError."""
    unit = await first_of_file(log, position)
    if unit is None or unit.index <= log.begin.index:
        name = log.data.name_of(position // log.data.file_bytes)
        raise LogDamaged(f"{log.data.where}/{name}", "no entry stands at its beginning")
    return await begin_before(log, unit)


async def first_of_file(log: EntryLog, position: int) -> IndexUnit | None:
    """What the entry that stands there says of itself."""
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
    return Begin(before, last.term, unit.position, stored_check(header))
