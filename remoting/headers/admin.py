"""Headers of a broker's administrative requests and of those that name one group, topic or client."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.header import Header
from remoting.wirefields import I32, I64, wire


@dataclass(slots=True)
class TopicHeader(Header):
    """GET_TOPIC_STATS_INFO (202), DELETE_TOPIC_IN_BROKER (215), QUERY_TOPIC_CONSUME_BY_WHO (300), GET_TOPIC_CONFIG (351)
    and other requests that name one topic, except GET_ROUTEINFO_BY_TOPIC (105). `lo` asks for the logical queue's own data."""

    topic: str
    lo: bool | None = None


@dataclass(slots=True)
class CreateTopicHeader(Header):
    """UPDATE_AND_CREATE_TOPIC (17). `attributes` has the form `+key=value,-key2`; `perm` is made of 1 INHERIT, 2 WRITE, 4
    READ."""

    topic: str
    default_topic: str
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: I32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


@dataclass(slots=True)
class UnregisterClientHeader(Header):
    """UNREGISTER_CLIENT (35)."""

    client_id: str = wire("clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(slots=True)
class ConsumerGroupHeader(Header):
    """GET_CONSUMER_LIST_BY_GROUP (38), NOTIFY_CONSUMER_IDS_CHANGED (40) and GET_CONSUMER_CONNECTION_LIST (203)."""

    consumer_group: str


@dataclass(slots=True)
class ProducerGroupHeader(Header):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


@dataclass(slots=True)
class GroupHeader(Header):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352) and QUERY_TOPICS_BY_CONSUMER (343)."""

    group: str


@dataclass(slots=True)
class DeleteSubscriptionGroupHeader(Header):
    """DELETE_SUBSCRIPTIONGROUP (207)."""

    group_name: str
    clean_offset: bool = False


@dataclass(slots=True)
class GetConsumeStatsHeader(Header):
    """GET_CONSUME_STATS (208). `topic_list` separates names with `;`."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@dataclass(slots=True)
class GetConsumerRunningInfoHeader(Header):
    """GET_CONSUMER_RUNNING_INFO (307)."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@dataclass(slots=True)
class ConsumerStatusHeader(Header):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223). `client_addr` is a client id, or empty for all clients of the group. The
    broker sends GET_CONSUMER_STATUS_FROM_CLIENT (221) to a client without `client_addr`."""

    topic: str
    group: str
    client_addr: str | None = None


@dataclass(slots=True)
class GroupAndTopicHeader(Header):
    """QUERY_CONSUME_TIME_SPAN (303) and QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str
    topic: str


@dataclass(slots=True)
class CloneGroupOffsetHeader(Header):
    """CLONE_GROUP_OFFSET (314). Without `topic` the offsets of all topics are copied in which `src_group` has offsets."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@dataclass(slots=True)
class BrokerStatsHeader(Header):
    """VIEW_BROKER_STATS_DATA (315). A key is a topic, `topic@group` or the cluster's name."""

    stats_name: str
    stats_key: str


@dataclass(slots=True)
class ConsumeStatsInBrokerHeader(Header):
    """GET_BROKER_CONSUME_STATS (317). `is_order` leaves out topics that are not ordered."""

    is_order: bool = False


@dataclass(slots=True)
class GetBrokerConfigResponseHeader(Header):
    """Reply to GET_BROKER_CONFIG (26). `version` is a DataVersion as JSON text."""

    version: str


@dataclass(slots=True)
class ResyncBrokerHeader(Header):
    """RESYNC_BROKER asks a replica to set its store aside and to copy the log again. `dry_run` only asks whether the
    replica would."""

    dry_run: bool = False


@dataclass(slots=True)
class ResyncBrokerResponseHeader(Header):
    """The id that the replica gives up, the folder below its store's root to which its store moves, the bytes of log in it,
    and whether the folder is kept for good."""

    broker_id: I64
    folder: str
    log_bytes: I64
    keeps: bool = False
