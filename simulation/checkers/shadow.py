"""Returns records that retention has deleted on brokers. They are taken from the checkers' own copy of all confirmed records.

Invariant: the records have exactly the bytes that replicas held. Nothing here is read from a broker."""

from __future__ import annotations

from collections.abc import Iterator

from messagestore import record
from mqclient.message import StoredMessage, decode_messages


def records_below(log: bytearray, end: int, segment_bytes: int) -> Iterator[memoryview]:
    """The records of `log` from its beginning to `end`, a segment's start."""
    view, at = memoryview(log).toreadonly(), 0
    while at < end:
        left = segment_bytes - at % segment_bytes
        size = record.check(view, at, left, at, verify_body=False)
        assert size >= 0, f"no record begins at {at} of the confirmed log"
        if size:
            yield view[at : at + size]
        at += size or left


def deleted_messages(log: bytearray, end: int, segment_bytes: int) -> Iterator[StoredMessage]:
    """The messages below `end` that consumers once could read."""
    for content in records_below(log, end, segment_bytes):
        yield from decode_messages(content)
