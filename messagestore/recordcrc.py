"""The CRC of a whole record (`enabledAppendPropCRC`). It is in a property at the record's end: `__CRC32#`, 0x01, ten digits,
0x02.

Invariant: the CRC covers all bytes of the record before that property, including offsets and store time. Its least significant
digit comes first, as in upstream. A property of this name anywhere else is no CRC. Pure."""

from __future__ import annotations

from zlib import crc32

from messagestore.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

CRC_MASK = 0x7FFFFFFF
NAME = b"__CRC32#"
DIGITS = 10
HEAD = NAME + NAME_VALUE_SEPARATOR
ROOM = HEAD + b"0" * DIGITS + PROPERTY_SEPARATOR
"""Placeholder until the record is complete."""
RECORD_CRC_BYTES = len(ROOM)

Buffer = bytes | bytearray | memoryview


def with_room(properties: bytes) -> bytes:
    """The properties with room for the CRC at their end. A CRC of the message's former record is removed."""
    properties = _without_crc(properties)
    if properties and not properties.endswith(PROPERTY_SEPARATOR):
        properties += PROPERTY_SEPARATOR
    return properties + ROOM


def with_no_crc(properties: bytes) -> bytes:
    """The properties of a record without CRC. A CRC of the message's former record is removed, because it would contradict the
    new record."""
    if not _end_with_crc(properties):
        return properties
    kept = _without_crc(properties)
    return (
        kept + PROPERTY_SEPARATOR if _end_with_crc(kept) else kept
    )  # else this is the end of a longer name or value


def _end_with_crc(properties: bytes) -> bool:
    return len(properties) >= RECORD_CRC_BYTES and ends_with_crc(properties)


def _without_crc(properties: bytes) -> bytes:
    if HEAD not in properties:
        return properties
    return PROPERTY_SEPARATOR.join(
        part for part in properties.split(PROPERTY_SEPARATOR) if not part.startswith(HEAD)
    )


def seal(buffer: bytearray | memoryview, at: int, size: int) -> None:
    """Write the CRC into the record at `buffer[at: at + size]`, whose properties were made by `with_room`."""
    place = at + size - RECORD_CRC_BYTES
    buffer[place : at + size] = crc_property(crc32(memoryview(buffer)[at:place]) & CRC_MASK)


def crc_property(crc: int) -> bytes:
    return HEAD + (b"%0*d" % (DIGITS, crc))[::-1] + PROPERTY_SEPARATOR


def ends_with_crc(record: Buffer) -> bool:
    """Whether a whole record has a CRC of its own, which `contradicts` compares."""
    return bytes(record[-RECORD_CRC_BYTES:]).startswith(HEAD)


def contradicts(buffer: Buffer, at: int, size: int, properties_bytes: int) -> bool:
    """Whether the record at `buffer[at: at + size]` ends with a CRC that does not match. False without a CRC."""
    end = at + size
    place = end - RECORD_CRC_BYTES
    if properties_bytes < RECORD_CRC_BYTES or buffer[place : place + len(HEAD)] != HEAD:
        return False
    return buffer[place:end] != crc_property(crc32(memoryview(buffer)[at:place]) & CRC_MASK)
