"""Builds the bytes of a commit log from another log's records.

Invariant: records are contiguous, and no record spans two segments. As in every commit log, a record that does not fit into a
segment together with a blank begins the next segment. A blank is a record that fills the rest of the segment before. So records
of a plain commit log keep their positions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from messagestore.record import PREFIX, encode_blank
from raftstore.framing import PlacedMessage, moved

STRETCH_BYTES = 1 << 20


def stretches(messages: Iterable[PlacedMessage], segment_bytes: int, begin: int) -> Iterator[bytes]:
    """The log from `begin` on, in pieces of about STRETCH_BYTES. No piece spans two segments."""
    gathered: list[bytes] = []
    size, end = 0, begin
    for message in messages:
        record, left = message.content, segment_bytes - end % segment_bytes
        if len(record) + PREFIX.size > left:
            yield b"".join([*gathered, encode_blank(left).ljust(left, b"\0")])
            gathered, size, end = [], 0, end + left
        gathered.append(moved(record, message.facts, end))
        size, end = size + len(record), end + len(record)
        if size >= STRETCH_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)
