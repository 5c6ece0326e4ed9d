"""Planted bugs of the CRCs of whole records."""

from __future__ import annotations

from messagestore import record
from messagestore.log import appender
from messagestore.recordcrc import Buffer
from simulation.mutants.cluster.bugs import BUGS

bug = BUGS.playing("record CRCs")


@bug("record-crc-unchecked", record, "contradicts")
def record_crc_unchecked(buffer: Buffer, at: int, size: int, properties_bytes: int) -> bool:
    """Records with flipped bits outside the body are served and sent to others."""
    return False


@bug("record-crc-left-out", appender, "with_room")
def record_crc_left_out(properties: bytes) -> bytes:
    """Records get no CRC, as if the master's setting came too late."""
    return properties


@bug("record-crc-left-out", appender, "seal")
def record_crc_left_out_2(buffer: bytearray | memoryview, at: int, size: int) -> None:
    """The other half of it."""
