"""The ends of the queues at a log's start: the messages below these queue offsets are gone.

Invariant: a member that gets its log's start from another member assigns no queue offset twice, although it never had the
earlier messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import orjson


class EmptiedQueueEnd(NamedTuple):
    """The messages of one queue below queue offset `end` are gone."""

    topic: str
    queue_id: int
    end: int


class QueueEndsUnreadable(ValueError):
    """The data was written by another version."""


def encode_queue_ends(ends: Iterable[EmptiedQueueEnd]) -> bytes:
    return orjson.dumps({"queueEnds": [list(each) for each in ends if each.end > 0]})


def decode_queue_ends(note: bytes) -> list[EmptiedQueueEnd]:
    """Decode queue ends; none for an empty note. Raises QueueEndsUnreadable."""
    if not note:
        return []
    try:
        found = [EmptiedQueueEnd(*each) for each in orjson.loads(note)["queueEnds"]]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise QueueEndsUnreadable(f"{note[:80]!r}: {error}") from error
    if not all(
        isinstance(each.topic, str) and isinstance(each.queue_id, int) and isinstance(each.end, int)
        for each in found
    ):
        raise QueueEndsUnreadable(f"{note[:80]!r}")
    return found
