"""Headers of the pull requests PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361)."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.header import Header
from remoting.wirefields import I32, I64, wire

SYS_FLAG_COMMIT_OFFSET = 1
SYS_FLAG_SUSPEND = 2
SYS_FLAG_SUBSCRIPTION = 4


@dataclass(slots=True)
class PullMessageHeader(Header):
    """A request for messages of a queue; `sys_flag` consists of the SYS_FLAG_ bits."""

    consumer_group: str
    topic: str
    queue_id: I32
    queue_offset: I64
    max_msg_nums: I32
    sys_flag: I32
    commit_offset: I64
    suspend_timeout_millis: I64
    sub_version: I64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: I32 | None = None
    request_source: I32 | None = None
    proxy_forward_client_id: str | None = wire("proxyFrowardClientId", default=None)
    broker_name: str | None = wire("bname", default=None)
    lite_topic: str | None = None


@dataclass(slots=True)
class PullMessageResponseHeader(Header):
    """The offset from which to pull next, and the queue's lowest and highest offset. It is sent with the codes SUCCESS (0),
    PULL_NOT_FOUND (19), PULL_RETRY_IMMEDIATELY (20) and PULL_OFFSET_MOVED (21)."""

    suggest_which_broker_id: I64
    next_begin_offset: I64
    min_offset: I64
    max_offset: I64
    offset_delta: I64 | None = None
    topic_sys_flag: I32 | None = None
    group_sys_flag: I32 | None = None
    forbidden_type: I32 | None = None
