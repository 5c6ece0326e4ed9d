"""Where a log can begin once a snapshot stands for what is before: at the beginning of one of its data files.

Invariant: all entries behind the given one stay in the log, and nothing but headers is read for it, beside the event loop."""

from __future__ import annotations

from dledger.entry import ENTRY_HEADER_BYTES, INDEX_UNIT, index_header, read_index_unit, stored_check
from dledger.log import EntryLog
from dledger.snapshot import Begin


async def begin_up_to(log: EntryLog, index: int) -> Begin:
    """The latest place where the log can begin behind entry `index` or an earlier one; where it begins now, if there is no
    other. Raises LogDamaged, OSError."""
    found = log.begin
    for position in range(log.data.begin + log.data.file_bytes, log.data.end, log.data.file_bytes):
        unit = index_header(await log.data.read(position, position + ENTRY_HEADER_BYTES))
        if unit is None or unit.position != position or not log.begin.index < unit.index - 1 <= index:
            break
        before = unit.index - 1
        start = before * INDEX_UNIT.size
        last = read_index_unit(memoryview(await log.index.read(start, start + INDEX_UNIT.size)), before)
        header = (
            b"" if last is None else await log.data.read(last.position, last.position + ENTRY_HEADER_BYTES)
        )
        if last is None or index_header(header) != last:
            raise log.unreadable(before)
        found = Begin(before, last.term, position, stored_check(header))
    return found
