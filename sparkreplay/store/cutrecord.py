"""Checks the record in which the bound lies: the part of the record below the bound must agree with the size at its beginning.

Invariant: a record is left out of a read only because the bound lies inside it. If the bytes below the bound show that its size
is damaged, the read fails. Pure."""

from __future__ import annotations

from messagestore.record import (
    FIXED_PARTS,
    PHYSICAL_OFFSET,
    PHYSICAL_OFFSET_AT,
    PREFIX,
    PROPERTIES_LENGTH,
    SYS_FLAG,
    SYS_FLAG_AT,
    TOPIC_LENGTHS,
)


def contradiction(record: memoryview, offset: int) -> str | None:
    """A description of what is wrong with the beginning of the record at physical offset `offset`; None if nothing is. The
    record's prefix is complete and was checked before."""
    have = len(record)
    size, magic = PREFIX.unpack_from(record)
    if have < PHYSICAL_OFFSET_AT + PHYSICAL_OFFSET.size:
        return None
    if PHYSICAL_OFFSET.unpack_from(record, PHYSICAL_OFFSET_AT)[0] != offset:
        return "the record names another physical offset"
    if have < SYS_FLAG_AT + SYS_FLAG.size:
        return None
    fixed = FIXED_PARTS[(SYS_FLAG.unpack_from(record, SYS_FLAG_AT)[0] >> 4) & 3]
    if have < fixed.size:
        return None
    body_bytes = fixed.unpack_from(record)[-1]
    topic_length = TOPIC_LENGTHS[magic]
    end = fixed.size + body_bytes
    for length in (topic_length, PROPERTIES_LENGTH):
        end += length.size
        if body_bytes < 0 or end > size:
            return "its parts are longer than the record"
        if have < end:
            return None
        end += length.unpack_from(record, end - length.size)[0]
    return None if end == size else "its parts do not add up to the record's size"
