"""Headers of requests about offsets of queues and of consumers."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.header import Header
from remoting.wirefields import I32, I64


@dataclass(slots=True)
class QueryConsumerOffsetHeader(Header):
    """QUERY_CONSUMER_OFFSET (14). The reply is an OffsetResponseHeader, or has the code QUERY_NOT_FOUND (22)."""

    consumer_group: str
    topic: str
    queue_id: I32
    set_zero_if_not_found: bool | None = None


@dataclass(slots=True)
class UpdateConsumerOffsetHeader(Header):
    """UPDATE_CONSUMER_OFFSET (15), usually one-way."""

    consumer_group: str
    topic: str
    queue_id: I32
    commit_offset: I64


@dataclass(slots=True)
class SearchOffsetHeader(Header):
    """SEARCH_OFFSET_BY_TIMESTAMP (29). `boundary_type` is LOWER or UPPER, in upper or lower case; `timestamp` is a store
    time in ms."""

    topic: str
    queue_id: I32
    timestamp: I64
    boundary_type: str | None = None
    lite_topic: str | None = None


@dataclass(slots=True)
class GetMaxOffsetHeader(Header):
    """GET_MAX_OFFSET (30)."""

    topic: str
    queue_id: I32
    committed: bool | None = None


@dataclass(slots=True)
class QueueHeader(Header):
    """GET_MIN_OFFSET (31) and GET_EARLIEST_MSG_STORETIME (32) of one queue."""

    topic: str
    queue_id: I32


@dataclass(slots=True)
class OffsetResponseHeader(Header):
    """Reply to QUERY_CONSUMER_OFFSET (14), SEARCH_OFFSET_BY_TIMESTAMP (29), GET_MAX_OFFSET (30) and GET_MIN_OFFSET (31)."""

    offset: I64


@dataclass(slots=True)
class TimestampResponseHeader(Header):
    """Reply to GET_EARLIEST_MSG_STORETIME (32): a time in ms, or -1 if the queue is empty."""

    timestamp: I64


@dataclass(slots=True)
class ResetOffsetHeader(Header):
    """INVOKE_BROKER_TO_RESET_OFFSET (222), from an administrator to a broker, and RESET_CONSUMER_CLIENT_OFFSET (220), from
    a broker to a client. A negative `timestamp` means the end of the queue."""

    topic: str
    group: str
    timestamp: I64
    is_force: bool = False
    queue_id: I32 = -1
    offset: I64 | None = None
