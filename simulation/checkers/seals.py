"""Checks logs in which each record ends with a CRC of the whole record.

Invariant L7: every confirmed record ends with such a CRC, and the CRC is right."""

from __future__ import annotations

from messagestore import record
from messagestore.recordcrc import HEAD, RECORD_CRC_BYTES
from simulation.checkers.shadow import records_below
from simulation.kernel.violation import Violation


def all_sealed(log: bytearray, segment_bytes: int) -> int:
    """Check all records of the log from offset 0 on, and return how many there are. Raises Violation."""
    count = 0
    for content in records_below(log, len(log), segment_bytes):
        at = record.PHYSICAL_OFFSET.unpack_from(content, record.PHYSICAL_OFFSET_AT)[0]
        left = segment_bytes - at % segment_bytes
        is_sealed = content[-RECORD_CRC_BYTES:][: len(HEAD)] == HEAD
        if not is_sealed or record.check(content, 0, left, at, verify_record=True) != len(content):
            raise Violation("L7", f"the confirmed record at {at} has no CRC of its own")
        count += 1
    return count
