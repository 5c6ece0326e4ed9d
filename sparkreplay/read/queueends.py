"""The first and the last message of queues within a planned read: whether what was asked for is there.

Invariant: they are found by walking the plan's own stretches from one end, so a seam that was wrong fails the read itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sparkreplay.records.decode import ChunkColumns, Selection
from sparkreplay.records.walk import Stretch, chunks_of
from sparkreplay.store.files import Files

Queue = tuple[str, int]
"""Topic, queue id."""


@dataclass(frozen=True)
class Seen:
    """One message of a queue; its store time in ms."""

    queue_offset: int
    stored_ms: int


def first_of(files: Files, stretches: Iterable[Stretch], queues: frozenset[Queue]) -> dict[Queue, Seen]:
    """The first message of each of `queues`; those that have none are left out. Ends as soon as all are found."""
    found: dict[Queue, Seen] = {}
    for stretch in stretches:
        for queue, seen in messages(files, stretch, queues - found.keys()):
            if found.setdefault(queue, seen) is seen and len(found) == len(queues):
                return found
    return found


def last_of(files: Files, stretches: Iterable[Stretch], queues: frozenset[Queue]) -> dict[Queue, Seen]:
    """The last message of each of `queues`; `stretches` come last one first."""
    found: dict[Queue, Seen] = {}
    for stretch in stretches:
        found.update(dict(messages(files, stretch, queues - found.keys())))
        if len(found) == len(queues):
            break
    return found


def last_stored_ms(files: Files, stretches: Iterable[Stretch]) -> int | None:
    """When the last record of `stretches` (last one first) was stored, of whatever topic; None when there is none."""
    selection = Selection(columns=(), committed_only=False, system_topics=True)
    for stretch in stretches:
        last: int | None = None
        for chunk in chunks_of(files, stretch):
            last = int(ChunkColumns(chunk, selection, stretch.segment.path).native("store_timestamp")[-1])
        if last is not None:
            return last
    return None


def messages(files: Files, stretch: Stretch, queues: frozenset[Queue]) -> Iterator[tuple[Queue, Seen]]:
    """Every message of `queues` in log order."""
    selection = Selection(
        columns=(),
        topics=frozenset(topic for topic, _ in queues),
        queues=frozenset(queue_id for _, queue_id in queues),
    )
    for chunk in chunks_of(files, stretch):
        columns = ChunkColumns(chunk, selection, stretch.segment.path)
        topics = columns.topics_of(columns.rows).to_pylist()
        queue_ids, offsets, times = (
            columns.native(name)[columns.rows].tolist()
            for name in ("queue_id", "queue_offset", "store_timestamp")
        )
        for topic, queue_id, offset, time in zip(topics, queue_ids, offsets, times, strict=True):
            if (topic, queue_id) in queues:
                yield (topic, queue_id), Seen(offset, time)
