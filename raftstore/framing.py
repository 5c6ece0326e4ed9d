"""A message in a Raft-mode broker's log: the body of a DLedger entry is a commit log record.

Invariant: a message's physical offset, which clients see, is the offset of the record, after the entry's header. So there is an
entry header between two consecutive messages. Pure."""

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
    """A message and its place, in a Raft-mode broker's log or in a plain log."""

    offset: int
    """The message's physical offset."""
    content: bytes
    facts: QueueFacts


def physical_offset(position: int) -> int:
    """Physical offset of the message whose entry begins at `position` of the data files."""
    return position + ENTRY_HEADER_BYTES


def facts_of(body: bytes, position: int) -> QueueFacts | None:
    """Data for the consume queue of the message in `body`, the body of the entry at `position`. None if the body is not a
    complete, intact message for this position."""
    offset = physical_offset(position)
    if check(body, 0, len(body), offset, verify_record=True) != len(body):
        return None
    facts = queue_facts(body, 0, len(body), offset)
    assert not isinstance(facts, int), "what was checked is a record"
    return facts


def moved(content: bytes, facts: QueueFacts, offset: int) -> bytes:
    """The record `content` with another physical offset; a CRC at the end of the record is recomputed."""
    record = bytearray(content)
    PHYSICAL_OFFSET.pack_into(record, PHYSICAL_OFFSET_AT, offset)
    if facts.properties[-RECORD_CRC_BYTES:].startswith(HEAD):
        seal(record, 0, len(record))
    return bytes(record)


def position_in_body(body: bytes) -> int | None:
    """Position of the entry with this body, taken from the physical offset in the message; None if the body is no message."""
    if len(body) < RECORD_SIZE_MIN or is_members(body):
        return None
    return int(PHYSICAL_OFFSET.unpack_from(body, PHYSICAL_OFFSET_AT)[0]) - ENTRY_HEADER_BYTES
