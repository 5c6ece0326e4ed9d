"""Bodies about message queues: statistics, locks, resets. Where Java has a map with queues as keys, it writes a JSON object
whose keys are JSON objects."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.bodies.body import Body
from remoting.bodies.heartbeats import SubscriptionData
from remoting.wirefields import I32, I64, wire

CONSUME_RESULTS = (
    "CR_SUCCESS",
    "CR_LATER",
    "CR_ROLLBACK",
    "CR_COMMIT",
    "CR_THROW_EXCEPTION",
    "CR_RETURN_NULL",
)


@dataclass(frozen=True, slots=True)
class MessageQueue(Body):
    """One queue of one topic on one broker group; usable as a key."""

    topic: str
    broker_name: str
    queue_id: I32


@dataclass(slots=True)
class LockQueuesBody(Body):
    """Body of LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): `client_id` locks these queues, to read them in order, or
    unlocks them."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = field(default_factory=list)
    only_this_broker: bool = False


@dataclass(slots=True)
class LockBatchResponseBody(Body):
    """Reply to LOCK_BATCH_MQ (41): the queues that the client holds now."""

    locked: list[MessageQueue] = wire("lockOKMQSet", default_factory=list)


@dataclass(slots=True)
class TopicOffset(Body):
    """The lowest and the highest offset of one queue. `last_update_timestamp` is the store time of its last message in ms, or 0
    if it has none."""

    min_offset: I64 = 0
    max_offset: I64 = 0
    last_update_timestamp: I64 = 0


@dataclass(slots=True)
class TopicStatsTable(Body):
    """Reply to GET_TOPIC_STATS_INFO (202)."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0


@dataclass(slots=True)
class OffsetWrapper(Body):
    """A group's position in one queue."""

    broker_offset: I64 = 0
    consumer_offset: I64 = 0
    pull_offset: I64 = 0
    last_timestamp: I64 = 0


@dataclass(slots=True)
class ConsumeStats(Body):
    """Reply to GET_CONSUME_STATS (208)."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


@dataclass(slots=True)
class ConsumeStatsList(Body):
    """Reply to GET_BROKER_CONSUME_STATS (317): a list with one object for each group, which maps the group to its state in
    each of its topics."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    broker_addr: str | None = None
    total_diff: I64 = 0
    total_inflight_diff: I64 = 0


@dataclass(slots=True)
class QueueTimeSpan(Body):
    """Store times in ms of a queue's first and last message and of the last message that a group consumed, and the group's
    delay."""

    message_queue: MessageQueue
    min_time_stamp: I64 = 0
    max_time_stamp: I64 = 0
    consume_time_stamp: I64 = 0
    delay_time: I64 = 0


@dataclass(slots=True)
class QueueTimeSpans(Body):
    """Reply to QUERY_CONSUME_TIME_SPAN (303)."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


@dataclass(slots=True)
class ConsumerStatusBody(Body):
    """Reply of a client to GET_CONSUMER_STATUS_FROM_CLIENT (221), with `message_queue_table`, and of a broker to
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), with `consumer_table`, whose keys are client ids."""

    message_queue_table: dict[MessageQueue, I64] = field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, I64]] = field(default_factory=dict)


@dataclass(slots=True)
class ResetOffsetBody(Body):
    """Reply to INVOKE_BROKER_TO_RESET_OFFSET (222), and body of RESET_CONSUMER_CLIENT_OFFSET (220)."""

    offset_table: dict[MessageQueue, I64] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueOffset(Body):
    """An offset in one queue."""

    topic: str
    broker_name: str
    queue_id: I32
    offset: I64


@dataclass(slots=True)
class ResetOffsetListBody(Body):
    """Body of RESET_CONSUMER_CLIENT_OFFSET (220) as the C++ library reads it."""

    offset_table: list[QueueOffset] = field(default_factory=list)


@dataclass(slots=True)
class QueryAssignmentBody(Body):
    """Body of QUERY_ASSIGNMENT (400): asks which queues of a topic a consumer is to read."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = ""
    message_model: str = "CLUSTERING"


@dataclass(slots=True)
class QueueAssignment(Body):
    """One queue, and its mode: PULL or POP."""

    message_queue: MessageQueue
    mode: str


@dataclass(slots=True)
class QueryAssignmentResponseBody(Body):
    """Reply to QUERY_ASSIGNMENT (400)."""

    message_queue_assignments: list[QueueAssignment] = field(default_factory=list)


@dataclass(slots=True)
class ConsumeQueueData(Body):
    """One entry of a queue. `eval` says whether the entry matches the requesting group's subscription."""

    physic_offset: I64
    physic_size: I32
    tags_code: I64
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


@dataclass(slots=True)
class QueryConsumeQueueBody(Body):
    """Reply to QUERY_CONSUME_QUEUE (321). `filter_data` explains why there is no subscription."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] = field(default_factory=list)
    max_queue_index: I64 = 0
    min_queue_index: I64 = 0


@dataclass(slots=True)
class ProcessQueueInfo(Body):
    """A client's state in a queue that it reads; times are ms."""

    commit_offset: I64 = 0
    cached_msg_min_offset: I64 = 0
    cached_msg_max_offset: I64 = 0
    cached_msg_count: I32 = 0
    cached_msg_size_in_mi_b: I32 = wire("cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: I64 = 0
    transaction_msg_max_offset: I64 = 0
    transaction_msg_count: I32 = 0
    locked: bool = False
    try_unlock_times: I64 = 0
    last_lock_timestamp: I64 = 0
    droped: bool = False
    last_pull_timestamp: I64 = 0
    last_consume_timestamp: I64 = 0


@dataclass(slots=True)
class PopQueueInfo(Body):
    """A client's state in a queue that it reads by POP; `last_pop_timestamp` is ms."""

    wait_ack_count: I32 = 0
    droped: bool = False
    last_pop_timestamp: I64 = 0


@dataclass(slots=True)
class ConsumeStatus(Body):
    """A client's recent consumption statistics of one topic."""

    pull_rt: float = wire("pullRT", default=0.0)
    pull_tps: float = wire("pullTPS", default=0.0)
    consume_rt: float = wire("consumeRT", default=0.0)
    consume_ok_tps: float = wire("consumeOKTPS", default=0.0)
    consume_failed_tps: float = wire("consumeFailedTPS", default=0.0)
    consume_failed_msgs: I64 = 0


@dataclass(slots=True)
class ConsumerQueues(Body):
    """Reply of a client to GET_CONSUMER_RUNNING_INFO (307). `properties` are the client's settings; `jstack` are its
    threads, if requested."""

    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, PopQueueInfo] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: dict[str, str] | None = None
    jstack: str | None = None


@dataclass(slots=True)
class ConsumeDirectlyResult(Body):
    """A client's reply to CONSUME_MESSAGE_DIRECTLY (309)."""

    order: bool = False
    auto_commit: bool = True
    consume_result: str | None = wire(names=CONSUME_RESULTS, default=None)
    remark: str | None = None
    spent_time_mills: I64 = 0
