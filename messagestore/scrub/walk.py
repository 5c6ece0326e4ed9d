"""Check a slice of the log: size, magic, position and body CRC of each record, and optionally the record CRC if there is one.

Invariant: a walk goes from one record boundary to another, and not beyond its limit. It ends after RECORDS_MAX records, so it
holds the interpreter for a few milliseconds at most. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from messagestore.record import END_OF_SEGMENT, INCOMPLETE, PREFIX, Buffer, check

SLICE_BYTES = 256 << 10
RECORDS_MAX = 1024


class WalkedSlice(NamedTuple):
    """`end` is the boundary that the walk reached after `records` records. `why` is the fault of the record there, or empty.
    With a fault, `size` is the size of the record if its head is whole. `wanted` is the size of a first record of which the
    slice holds only a part."""

    end: int
    records: int
    why: str = ""
    size: int = 0
    wanted: int = 0


WalkSlice = Callable[[bytes, int, int, int, bool], WalkedSlice]
"""The type of `walk_slice`, for a log with any framing of records."""


def walk_slice(
    buffer: Buffer, start: int, segment_end: int, limit: int, verify_record: bool = False
) -> WalkedSlice:
    """Walk the records of `buffer`, which holds bytes of one segment from `start` on, up to `limit` at most."""
    position = start
    for records in range(RECORDS_MAX):
        if position >= limit:
            return WalkedSlice(position, records)
        at = position - start
        size = check(buffer, at, segment_end - position, position, verify_record=verify_record)
        if size == END_OF_SEGMENT:
            return WalkedSlice(segment_end, records)
        if size == INCOMPLETE:
            whole = PREFIX.unpack_from(buffer, at)[0] if len(buffer) - at >= PREFIX.size else 0
            if position + max(whole, PREFIX.size) > limit:
                return WalkedSlice(position, records, f"a record of {whole} bytes goes beyond {limit}")
            return WalkedSlice(position, records, wanted=max(whole, PREFIX.size) if at == 0 else 0)
        if size < 0:
            size = max(check(buffer, at, segment_end - position, position, verify_body=False), 0)
            body_differs = size and check(buffer, at, segment_end - position, position) < 0
            crc_of = "body" if body_differs else "record"
            why = f"the {crc_of} has another CRC" if size else "no head of a record is here"
            return WalkedSlice(position, records, why, size)
        position += size
    return WalkedSlice(position, RECORDS_MAX)
