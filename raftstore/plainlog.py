"""The messages of a plain commit log, as brokers without Raft mode write it.

Invariant: all messages up to the given end are returned, complete and in order, or an error is raised. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dledger.storage.inspection import NamedFile
from messagestore.record import queue_facts
from messagestore.walker import order_segments, walk
from raftstore.census import OLD_LOG
from raftstore.framing import PlacedMessage


def plain_messages(
    files: Sequence[NamedFile], end: int, segment_bytes: int | None = None
) -> Iterator[PlacedMessage]:
    """Messages below `end`. Each file has `segment_bytes`; without this argument all files must have one size. Raises
    BadSegments, StoreCorrupted."""
    views = dict(files)
    segments = order_segments(OLD_LOG, [(name, len(view)) for name, view in files], segment_bytes)
    begin = segments[0].start_offset if segments else 0
    for view, at, offset, size in walk(segments, lambda one: views[one.name], begin, end):
        content = bytes(view[at : at + size])
        facts = queue_facts(content, 0, size, offset)
        assert not isinstance(facts, int), "what was walked is a record"
        yield PlacedMessage(offset, content, facts)
