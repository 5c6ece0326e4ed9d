"""A message in a Raft-mode broker's log: a commit log record as the body of an entry of a DLedger log.

Invariant: its physical offset, which clients see, is that of the record, after the entry's header; so two consecutive
messages are a header apart. Pure."""

from __future__ import annotations

from typing import NamedTuple

from dledger.raft.membership import is_members
from dledger.storage.entry import ENTRY_HEADER_BYTES
from messagestore.record import (
    PHYSICAL_OFFSET,
    PHYSICAL_OFFSET_AT,
    RECORD_SIZE_MIN,
    QueueFacts,
    check,
    queue_facts,
)
from messagestore.recordcrc import HEAD, RECORD_CRC_BYTES, seal


class PlacedMessage(NamedTuple):
    """A message and its place, in a Raft-mode broker's log or in another."""

    offset: int
    """Its physical offset."""
    content: bytes
    facts: QueueFacts


def physical_offset(position: int) -> int:
    """Offset of the message in the entry at `position` of the data files."""
    return position + ENTRY_HEADER_BYTES


def facts_of(body: bytes, position: int) -> QueueFacts | None:
    """Consume queue data of the message in the `body` of the entry at `position`; None if it is no complete, intact
    message for that position."""
    offset = physical_offset(position)
    if check(body, 0, len(body), offset, verify_record=True) != len(body):
        return None
    facts = queue_facts(body, 0, len(body), offset)
    assert not isinstance(facts, int), "what was checked is a record"
    return facts


def moved(content: bytes, facts: QueueFacts, offset: int) -> bytes:
    """The same record with another physical offset; a trailing CRC of the record is recomputed."""
    record = bytearray(content)
    PHYSICAL_OFFSET.pack_into(record, PHYSICAL_OFFSET_AT, offset)
    if facts.properties[-RECORD_CRC_BYTES:].startswith(HEAD):
        seal(record, 0, len(record))
    return bytes(record)


def position_in_body(body: bytes) -> int | None:
    """Position of an entry, as the message that is its body records it; None if it is no message."""
    if len(body) < RECORD_SIZE_MIN or is_members(body):
        return None
    return int(PHYSICAL_OFFSET.unpack_from(body, PHYSICAL_OFFSET_AT)[0]) - ENTRY_HEADER_BYTES
