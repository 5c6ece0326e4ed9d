"""The log as it was before retention: records that a broker holds no more, from the checks' copy of all that was confirmed.

Invariant: they are what replicas held, byte for byte; nothing here is asked of a broker."""

from __future__ import annotations

from collections.abc import Iterator

from messagestore import record
from mqclient.message import StoredMessage, decode_messages


def records_below(log: bytearray, end: int, segment_bytes: int) -> Iterator[memoryview]:
    """Of `log`, from its beginning to `end`, a segment's start."""
    view, at = memoryview(log).toreadonly(), 0
    while at < end:
        left = segment_bytes - at % segment_bytes
        size = record.check(view, at, left, at, verify_body=False)
        assert size >= 0, f"no record stands at {at} of what was confirmed"
        if size:
            yield view[at : at + size]
        at += size or left


def deleted_messages(log: bytearray, end: int, segment_bytes: int) -> Iterator[StoredMessage]:
    """What consumers could read below `end` once."""
    for content in records_below(log, end, segment_bytes):
        yield from decode_messages(content)
