"""When the record that stands first in a segment was stored, as far as that can be believed.

Invariant: no single record that rotted makes a segment older than it is: by such a time files would go that are young. A
record's own CRC proves its time. Where it has none, it counts as being as young as the next one, if that reads younger: times
never go back."""

from __future__ import annotations

from messagestore.log.files import LogFiles
from messagestore.record import END_OF_SEGMENT, PREFIX, check, declared_end, store_timestamp
from messagestore.recordcrc import ends_with_crc


async def first_time(log: LogFiles, offset: int, end: int) -> int | None:
    """Of the record at `offset` of a log whose records stand side by side up to `end`, ms; None where no sound one stands, or
    none behind it that is needed. OffsetOutOfRange where it is gone, OSError."""
    first = await _record(log, offset, end)
    if first is None or ends_with_crc(first):  # which agrees
        return None if first is None else store_timestamp(first, 0) or None
    second = await _record(log, offset + len(first), end)
    return None if second is None else max(store_timestamp(first, 0), store_timestamp(second, 0)) or None


async def _record(log: LogFiles, offset: int, end: int) -> bytes | None:
    """That stands there, or first in the next segment where this one's records end; None where none stands that is as it was
    written, as far as its CRCs tell."""
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
