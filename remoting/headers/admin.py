"""Headers of a broker's administrative requests and of those that name one group, topic or client."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.header import Header
from remoting.wirefields import I32, I64, wire


@dataclass(slots=True)
class TopicHeader(Header):
    """202, 215, 300, 351 and others that name one topic (except 105); `lo` asks for the logical queue's own."""

    topic: str
    lo: bool | None = None


@dataclass(slots=True)
class CreateTopicHeader(Header):
    """17; `attributes` reads `+key=value,-key2`; `perm` is made of 1 INHERIT, 2 WRITE, 4 READ."""

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
    """35"""

    client_id: str = wire("clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(slots=True)
class ConsumerGroupHeader(Header):
    """38, 40 and 203"""

    consumer_group: str


@dataclass(slots=True)
class ProducerGroupHeader(Header):
    """204"""

    producer_group: str


@dataclass(slots=True)
class GroupHeader(Header):
    """352 and 343"""

    group: str


@dataclass(slots=True)
class DeleteSubscriptionGroupHeader(Header):
    """207"""

    group_name: str
    clean_offset: bool = False


@dataclass(slots=True)
class GetConsumeStatsHeader(Header):
    """208; `topic_list` separates names with `;`."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@dataclass(slots=True)
class GetConsumerRunningInfoHeader(Header):
    """307"""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@dataclass(slots=True)
class ConsumerStatusHeader(Header):
    """223, and 221 to the client, without `client_addr`; `client_addr` is a client id, or empty for all of the group."""

    topic: str
    group: str
    client_addr: str | None = None


@dataclass(slots=True)
class GroupAndTopicHeader(Header):
    """303 and 345"""

    group: str
    topic: str


@dataclass(slots=True)
class CloneGroupOffsetHeader(Header):
    """314; without `topic` all topics in which `src_group` has offsets."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@dataclass(slots=True)
class BrokerStatsHeader(Header):
    """315; keys are a topic, `topic@group` or the cluster's name."""

    stats_name: str
    stats_key: str


@dataclass(slots=True)
class ConsumeStatsInBrokerHeader(Header):
    """317; `is_order` leaves out topics that are not ordered."""

    is_order: bool = False


@dataclass(slots=True)
class GetBrokerConfigResponseHeader(Header):
    """Reply to 26; `version` is a DataVersion as JSON text."""

    version: str


@dataclass(slots=True)
class ResyncBrokerHeader(Header):
    """RESYNC_BROKER, to a replica: set your store aside and copy the log again; `dry_run` only asks whether it would."""

    dry_run: bool = False


@dataclass(slots=True)
class ResyncBrokerResponseHeader(Header):
    """The id that the replica abandons, the folder below its store's root to which its store moves, the bytes of log there,
    and whether the folder is kept for good."""

    broker_id: I64
    folder: str
    log_bytes: I64
    keeps: bool = False
