"""Bodies in which clients report about themselves, and brokers about their clients."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.bodies.body import Body
from remoting.wirefields import I32, I64, wire

CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


@dataclass(slots=True)
class SubscriptionData(Body):
    """One subscription. Do not trust the `code_set` that a client sends: compute it from `sub_string`."""

    topic: str
    sub_string: str = "*"
    tags_set: list[str] = field(default_factory=list)
    code_set: list[I32] = field(default_factory=list)
    sub_version: I64 = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


@dataclass(slots=True)
class ConsumerData(Body):
    """One consumer group of a client."""

    group_name: str
    consume_type: str = wire(names=CONSUME_TYPES, default="CONSUME_PASSIVELY")
    message_model: str = wire(names=MESSAGE_MODELS, default="CLUSTERING")
    consume_from_where: str = wire(names=CONSUME_FROM_WHERE, default="CONSUME_FROM_LAST_OFFSET")
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


@dataclass(slots=True)
class ProducerData(Body):
    """One producer group of a client."""

    group_name: str


@dataclass(slots=True)
class HeartbeatData(Body):
    """Body of HEART_BEAT (34)."""

    client_id: str = wire("clientID")
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: I32 = 0
    without_sub: bool = wire("withoutSub", default=False)


@dataclass(slots=True)
class ConsumerRunningInfo(Body):
    """A client's reply to GET_CONSUMER_RUNNING_INFO (307), without the state of its queues and its statistics."""

    subscription_set: list[SubscriptionData] = field(default_factory=list)


@dataclass(slots=True)
class CheckClientConfigBody(Body):
    """Body of CHECK_CLIENT_CONFIG (46)."""

    client_id: str
    group: str
    subscription_data: SubscriptionData
    namespace: str | None = None


@dataclass(slots=True)
class ConsumerIdList(Body):
    """Reply to GET_CONSUMER_LIST_BY_GROUP (38)."""

    consumer_id_list: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Connection(Body):
    """One client connection of a group."""

    client_id: str
    client_addr: str
    language: str = "OTHER"
    version: I32 = 0


@dataclass(slots=True)
class ConsumerConnection(Body):
    """Reply to GET_CONSUMER_CONNECTION_LIST (203)."""

    connection_set: list[Connection] = field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: str | None = wire(names=CONSUME_TYPES, default=None)
    message_model: str | None = wire(names=MESSAGE_MODELS, default=None)
    consume_from_where: str | None = wire(names=CONSUME_FROM_WHERE, default=None)


@dataclass(slots=True)
class ProducerConnection(Body):
    """Reply to GET_PRODUCER_CONNECTION_LIST (204)."""

    connection_set: list[Connection] = field(default_factory=list)


@dataclass(slots=True)
class ProducerInfo(Body):
    """One connected producer; `last_update_timestamp` is the time of its last heartbeat, ms."""

    client_id: str
    remote_ip: str = wire("remoteIP")
    language: str = "OTHER"
    version: I32 = 0
    last_update_timestamp: I64 = 0


@dataclass(slots=True)
class ProducerTable(Body):
    """Reply to GET_ALL_PRODUCER_INFO (328): group -> its producers."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


@dataclass(slots=True)
class GroupSubscription(Body):
    """Reply to QUERY_SUBSCRIPTION_BY_CONSUMER (345): a group's subscription of a topic. It has no subscription while no
    member is connected."""

    topic: str
    group: str
    subscription_data: SubscriptionData | None = None
