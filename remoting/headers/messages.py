"""Headers of requests about single stored messages."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.header import Header
from remoting.wirefields import I32, I64, wire


@dataclass(slots=True)
class QueryMessageHeader(Header):
    """QUERY_MESSAGE (12). `unique_key_query` searches for the producer's message id."""

    topic: str
    key: str
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64
    unique_key_query: bool | None = wire("_UNIQUE_KEY_QUERY", default=None)
    index_type: str | None = None
    """From 5.4.0 on: K, a word of the keys; U, the producer's message id; T, the tag."""
    last_key: str | None = None
    """From 5.4.0 on, for brokers that store their index in RocksDB; it is ignored here."""


@dataclass(slots=True)
class QueryMessageResponseHeader(Header):
    """Reply to QUERY_MESSAGE (12): up to which message the index had been built at the query."""

    index_last_update_timestamp: I64
    index_last_update_phyoffset: I64


@dataclass(slots=True)
class ViewMessageHeader(Header):
    """VIEW_MESSAGE_BY_ID (33). `offset` is physical."""

    offset: I64
    topic: str | None = None


@dataclass(slots=True)
class ConsumerSendMsgBackHeader(Header):
    """CONSUMER_SEND_MSG_BACK (36): the message at physical `offset` was not consumed. A negative `delay_level` means no
    further retry."""

    offset: I64
    group: str
    delay_level: I32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = False
    max_reconsume_times: I32 | None = None


@dataclass(slots=True)
class ConsumeMessageDirectlyHeader(Header):
    """CONSUME_MESSAGE_DIRECTLY (309)."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None


@dataclass(slots=True)
class QueryConsumeQueueHeader(Header):
    """QUERY_CONSUME_QUEUE (321). `index` counts entries."""

    topic: str
    queue_id: I32
    index: I64
    count: I32
    consumer_group: str | None = None
