"""Queue offsets of messages that are gone, kept for a log that begins later.

Invariant: a member that gets its log's beginning from another member assigns no queue offset twice, though it never
had those messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import orjson


class EmptiedQueueEnd(NamedTuple):
    """The messages that are gone had the offsets below `end`."""

    topic: str
    queue_id: int
    end: int


class QueueEndsUnreadable(ValueError):
    """The data is of another version."""


def encode_queue_ends(ends: Iterable[EmptiedQueueEnd]) -> bytes:
    return orjson.dumps({"queueEnds": [list(each) for each in ends if each.end > 0]})


def decode_queue_ends(note: bytes) -> list[EmptiedQueueEnd]:
    """Empty for an empty note. Raises QueueEndsUnreadable."""
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
