"""Headers of requests about offsets of queues and of consumers: 14, 15, 29-32, 220, 222."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.header import Header
from remoting.wirefields import I32, I64


@dataclass(slots=True)
class QueryConsumerOffsetHeader(Header):
    """14; the reply is an OffsetResponseHeader, or code 22."""

    consumer_group: str
    topic: str
    queue_id: I32
    set_zero_if_not_found: bool | None = None


@dataclass(slots=True)
class UpdateConsumerOffsetHeader(Header):
    """15, usually one-way."""

    consumer_group: str
    topic: str
    queue_id: I32
    commit_offset: I64


@dataclass(slots=True)
class SearchOffsetHeader(Header):
    """29; `boundary_type` is LOWER or UPPER, in any case of letters; `timestamp` is a store time in ms."""

    topic: str
    queue_id: I32
    timestamp: I64
    boundary_type: str | None = None
    lite_topic: str | None = None


@dataclass(slots=True)
class GetMaxOffsetHeader(Header):
    """30"""

    topic: str
    queue_id: I32
    committed: bool | None = None


@dataclass(slots=True)
class QueueHeader(Header):
    """31 and 32: one queue."""

    topic: str
    queue_id: I32


@dataclass(slots=True)
class OffsetResponseHeader(Header):
    """Reply to 14, 29, 30 and 31."""

    offset: I64


@dataclass(slots=True)
class TimestampResponseHeader(Header):
    """Reply to 32: ms, or -1 when the queue is empty."""

    timestamp: I64


@dataclass(slots=True)
class ResetOffsetHeader(Header):
    """222 (admin to broker) and 220 (broker to client); negative `timestamp` means the end of the queue."""

    topic: str
    group: str
    timestamp: I64
    is_force: bool = False
    queue_id: I32 = -1
    offset: I64 | None = None
