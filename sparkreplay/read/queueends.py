"""The first and the last message of queues within a planned read, which show whether the requested offsets are there.

Invariant: the messages are found by reading the plan's stretches one after the other, so a wrong split point fails the read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

from sparkreplay.records.decode import ChunkColumns, Selection, messages_of
from sparkreplay.records.walk import Stretch, chunks_of
from sparkreplay.store.files import Files

Queue = tuple[str, int]
"""Topic, queue id."""


@dataclass(frozen=True)
class Seen:
    """One message of a queue, with its store time in ms."""

    queue_offset: int
    stored_ms: int


def first_of(files: Files, stretches: Iterable[Stretch], queues: frozenset[Queue]) -> dict[Queue, Seen]:
    """The first message of each of `queues` that has messages. The walk ends as soon as all are found."""
    found: dict[Queue, Seen] = {}
    for stretch in stretches:
        for queue, seen in messages(files, stretch, queues - found.keys()):
            if found.setdefault(queue, seen) is seen and len(found) == len(queues):
                return found
    return found


def last_of(files: Files, stretches: Iterable[Stretch], queues: frozenset[Queue]) -> dict[Queue, Seen]:
    """The last message of each of `queues`. `stretches` are in reverse order."""
    found: dict[Queue, Seen] = {}
    for stretch in stretches:
        found.update(dict(messages(files, stretch, queues - found.keys())))
        if len(found) == len(queues):
            break
    return found


def newest_stored_ms(files: Files, stretches: Iterable[Stretch], enough_ms: int) -> int | None:
    """The newest store time of records in `stretches`, of any topic; None without records. The walk ends at the first time
    that is `enough_ms` or newer."""
    selection = Selection(columns=(), committed_only=False, system_topics=True)
    newest: int | None = None
    for stretch in stretches:
        for chunk in chunks_of(files, stretch):
            times = ChunkColumns(chunk, selection, stretch.segment.path).native("store_timestamp")
            last = int(times.max())
            newest = last if newest is None else max(newest, last)
            if newest >= enough_ms:
                return newest
    return newest


def stored_since(files: Files, stretches: Iterable[Stretch], times_ms: Mapping[Queue, int]) -> set[Queue]:
    """The queues with a message that was stored at the queue's time or later. The walk ends as soon as all queues have one."""
    found: set[Queue] = set()
    for stretch in stretches:
        for queue, seen in messages(files, stretch, times_ms.keys() - found):
            if seen.stored_ms >= times_ms[queue]:
                found.add(queue)
                if len(found) == len(times_ms):
                    return found
    return found


def topics_seen(files: Files, stretches: Iterable[Stretch], topics: Set[str]) -> set[str]:
    """The topics among `topics` that have a record of any transaction kind. The walk ends as soon as all topics have one."""
    selection = Selection(columns=(), topics=frozenset(topics), committed_only=False, system_topics=True)
    found: set[str] = set()
    for stretch in stretches:
        for chunk in chunks_of(files, stretch):
            found |= set(ChunkColumns(chunk, selection, stretch.segment.path).topics.unique().to_pylist())
            if len(found) == len(topics):
                return found
    return found


def messages(files: Files, stretch: Stretch, queues: Set[Queue]) -> Iterator[tuple[Queue, Seen]]:
    """Every message of `queues` in log order."""
    selection = Selection(
        columns=(),
        topics=frozenset(topic for topic, _ in queues),
        queues=frozenset(queue_id for _, queue_id in queues),
    )
    for chunk in chunks_of(files, stretch):
        columns = messages_of(chunk, selection, stretch.segment.path)
        topics = columns.topics_of(columns.rows).to_pylist()
        queue_ids, offsets, times = (
            columns.native(name)[columns.rows].tolist()
            for name in ("queue_id", "queue_offset", "store_timestamp")
        )
        for topic, queue_id, offset, time in zip(topics, queue_ids, offsets, times, strict=True):
            if (topic, queue_id) in queues:
                yield (topic, queue_id), Seen(offset, time)
