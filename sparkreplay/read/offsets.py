"""The two ends of a read, as its options give them: a physical offset, offsets per queue, or store times.

Invariant: a range is half open, [start, end), in each form, and every value is a whole number >= 0. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from sparkreplay.errors import OptionError

EARLIEST, LATEST = -2, -1
"""The values for earliest and latest inside JSON, as in Kafka's connector."""
VALUE_MAX = 2**63 - 1
DIGITS_MAX = len(str(VALUE_MAX))
QUEUE_ID_MAX = 2**31 - 1


@dataclass(frozen=True)
class QueueValue:
    """A queue offset, or a time in ms, that JSON gives for one queue. If `broker_name` is None, it holds for any broker set."""

    topic: str
    broker_name: str | None
    queue_id: int
    value: int


PerQueue: TypeAlias = tuple[QueueValue, ...]


@dataclass(frozen=True)
class Edge:
    """One end of a read. At most one field besides `topics` is set. If none is set, it is the log's beginning or the committed
    bound."""

    physical_offset: int | None = None
    queue_offsets: PerQueue = ()
    timestamp: int | None = None
    queue_timestamps: PerQueue = ()
    at_bound: bool = False
    """Whether a stream begins with records committed after its start."""
    topics: frozenset[str] = field(default=frozenset(), compare=False)
    """All topics in the JSON, including topics without a value for a queue."""

    @property
    def names_offsets(self) -> bool:
        """Whether the request names offsets, where messages may be gone. Any other request asks only for existing messages."""
        return self.physical_offset is not None or bool(self.queue_offsets)

    @property
    def per_queue(self) -> PerQueue:
        return self.queue_offsets or self.queue_timestamps


def starting_edge(offsets: str, by_timestamp: str | None, timestamp: str | None) -> Edge:
    """The start that the options give. A time overrides times per queue, which override offsets. Raises OptionError."""
    if timestamp is not None:
        return Edge(timestamp=whole_number("startingTimestamp", timestamp))
    if by_timestamp is not None:
        return times_edge("startingOffsetsByTimestamp", by_timestamp)
    if offsets.lower() == "latest":
        return Edge(at_bound=True)
    return offsets_edge("startingOffsets", offsets, "earliest", EARLIEST)


def ending_edge(offsets: str, by_timestamp: str | None, timestamp: str | None) -> Edge:
    """The end that the options give. `latest` and `confirmed` give the same edge: they differ only in the bound up to which the
    store is opened. Raises OptionError."""
    if timestamp is not None:
        return Edge(timestamp=whole_number("endingTimestamp", timestamp))
    if by_timestamp is not None:
        return times_edge("endingOffsetsByTimestamp", by_timestamp)
    same = "confirmed" if offsets.lower() == "latest" else offsets
    return offsets_edge("endingOffsets", same, "confirmed", LATEST)


def offsets_edge(option: str, text: str, keyword: str, sentinel: int) -> Edge:
    """The edge in an option's value. `keyword` alone, or `sentinel` for a queue in JSON, means no edge on this side."""
    if text.lower() == keyword:
        return Edge()
    if text.lstrip().startswith("{"):
        named = per_queue(option, text, sentinel)
        return Edge(
            queue_offsets=tuple(queue for queue in named if queue.value != sentinel), topics=topics_of(named)
        )
    if not text[:1].isdecimal():
        other = "confirmed, latest" if sentinel == LATEST else keyword
        raise OptionError(option, f"{text!r} is none of {other}, a physical offset, JSON per queue")
    return Edge(physical_offset=whole_number(option, text))


def times_edge(option: str, text: str) -> Edge:
    named = per_queue(option, text)
    return Edge(queue_timestamps=named, topics=topics_of(named))


def topics_of(named: PerQueue) -> frozenset[str]:
    return frozenset(queue.topic for queue in named)


def whole_number(option: str, text: str, most: int = VALUE_MAX) -> int:
    digits = text.lstrip("0")[: DIGITS_MAX + 1] or "0"
    if not (text.isascii() and text.isdecimal()):
        raise OptionError(option, f"{text!r} is not a whole number")
    if int(digits) > most:
        raise OptionError(option, f"{text} is too much; {most} is the most")
    return int(digits)


def require_utf8(option: str, name: str) -> None:
    """Raise OptionError for a text with half of a surrogate pair. An escape in JSON or a byte of a command line may give such a
    text, but no topic's name contains it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise OptionError(option, f"{name!r} is not UTF-8") from None


def per_queue(option: str, text: str, sentinel: int | None = None) -> PerQueue:
    """Read `{topic: {queue: n}}` or `{topic: {broker: {queue: n}}}`. The only allowed `n` below 0 is `sentinel`."""
    shape = f'{option} is JSON like {{"topic": {{"0": 23}}}} or {{"topic": {{"broker-a": {{"0": 23}}}}}}'
    try:
        topics = json.loads(text, object_pairs_hook=partial(named_once, option))
    except (ValueError, RecursionError) as error:
        raise OptionError(option, f"is no JSON: {error}; {shape}") from None
    found: list[QueueValue] = []
    for topic, queues in members(option, topics, shape):
        require_utf8(option, topic)
        for name, inner in members(option, queues, shape):
            if isinstance(inner, dict):
                found += [
                    queue_value(option, topic, name, queue, value, sentinel) for queue, value in inner.items()
                ]
            else:
                found.append(queue_value(option, topic, None, name, inner, sentinel))
    if not found:
        raise OptionError(option, f"names no queue; {shape}")
    require_named_once(option, found)
    return tuple(found)


def named_once(option: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises OptionError for duplicate names, of which all but the last would be dropped silently."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise OptionError(option, f"names {json.dumps(name)} twice")
        found[name] = value
    return found


def require_named_once(option: str, queues: list[QueueValue]) -> None:
    """Raise OptionError if a queue is named twice. A queue may be written in several ways (0 and 00, with and without its
    broker set)."""
    seen: dict[tuple[str, int], list[str | None]] = {}
    for queue in queues:
        brokers = seen.setdefault((queue.topic, queue.queue_id), [])
        if brokers and (queue.broker_name in (None, *brokers) or None in brokers):
            raise OptionError(option, f"names queue {queue.topic}/{queue.queue_id} twice")
        brokers.append(queue.broker_name)


def members(option: str, value: Any, shape: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise OptionError(option, f"{json.dumps(value)} is no JSON object; {shape}")
    return list(value.items())


def queue_value(
    option: str, topic: str, broker_name: str | None, queue: str, value: Any, sentinel: int | None
) -> QueueValue:
    where = f"{topic}/{queue}"
    if not (queue.isascii() and queue.isdecimal()):
        raise OptionError(option, f"{where}: {queue!r} is no queue id")
    queue_id = whole_number(option, queue, QUEUE_ID_MAX)
    if type(value) is not int or not (0 <= value <= VALUE_MAX or value == sentinel):
        permitted = "a whole number" if sentinel is None else f"a whole number or {sentinel}"
        raise OptionError(option, f"{where}: {json.dumps(value)} is not {permitted}")
    return QueueValue(topic, broker_name, queue_id, value)
