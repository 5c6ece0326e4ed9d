"""The store time of a segment's first record, from which retention takes the age of the segment before.

Invariant: one corrupt record alone never makes the returned time too old, because retention would then delete young data. A CRC
of the whole record proves the record's time. Without this CRC, the next record's time is used if it is later: store times never
go back."""

from __future__ import annotations

from messagestore.log.files import LogFiles
from messagestore.record import END_OF_SEGMENT, PREFIX, check, declared_end, store_timestamp
from messagestore.recordcrc import ends_with_crc


async def first_time(log: LogFiles, offset: int, end: int) -> int | None:
    """The store time, in ms, of the record at `offset` of a log whose records are contiguous up to `end`. None if there is no
    record, if it is not intact or has the time 0, or if the next record is needed and is not intact. Raises OffsetOutOfRange if
    the record was deleted, or OSError."""
    first = await _record(log, offset, end)
    if first is None or ends_with_crc(first):  # the CRC agrees
        return None if first is None else store_timestamp(first, 0) or None
    second = await _record(log, offset + len(first), end)
    return None if second is None else max(store_timestamp(first, 0), store_timestamp(second, 0)) or None


async def _record(log: LogFiles, offset: int, end: int) -> bytes | None:
    """The record at `offset`, or the next segment's first record if this segment's records end there. None if there is no
    intact record."""
    left = log.segment_start(offset) + log.segment_size_bytes - offset
    if offset < end and check(await log.read_cold(offset, PREFIX.size), 0, left, offset) == END_OF_SEGMENT:
        offset, left = offset + left, log.segment_size_bytes
    if offset + PREFIX.size > end:
        return None
    head = await log.read_cold(offset, PREFIX.size)
    size = declared_end(head, 0, offset) - offset if len(head) == PREFIX.size else 0
    if not 0 < size <= min(left, end - offset):
        return None
    content = await log.read_cold(offset, size)
    return content if check(content, 0, left, offset, verify_record=True) == size else None
