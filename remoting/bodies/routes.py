"""Replies of the name server: routes, clusters, member groups, topic lists, key-value tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from remoting.bodies.body import Body
from remoting.wirefields import I32, I64

ORDER_QUEUES_MAX = 1 << 16
ORDER_DIGITS_MAX = 5


@dataclass(slots=True)
class BrokerData(Body):
    """The addresses of one broker group by role id; the master's role id is 0."""

    cluster: str
    broker_name: str
    broker_addrs: dict[I64, str] = field(default_factory=dict)
    enable_acting_master: bool = False
    zone_name: str | None = None


@dataclass(slots=True)
class QueueData(Body):
    """The queues of one topic on one broker group; `perm` is made of 1 INHERIT, 2 WRITE, 4 READ."""

    broker_name: str
    read_queue_nums: I32 = 0
    write_queue_nums: I32 = 0
    perm: I32 = 0
    topic_sys_flag: I32 = 0


@dataclass(slots=True)
class TopicRouteData(Body):
    """Reply to GET_ROUTEINFO_BY_TOPIC (105) and body of REGISTER_TOPIC_IN_NAMESRV (217)."""

    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, Any] | None = None


@dataclass(slots=True)
class ClusterInfo(Body):
    """Reply to GET_BROKER_CLUSTER_INFO (106)."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class BrokerMemberGroup(Body):
    """The members of one broker group by id."""

    cluster: str
    broker_name: str
    broker_addrs: dict[I64, str] = field(default_factory=dict)


@dataclass(slots=True)
class GetBrokerMemberGroupBody(Body):
    """Reply to GET_BROKER_MEMBER_GROUP (901)."""

    broker_member_group: BrokerMemberGroup


@dataclass(slots=True)
class TopicList(Body):
    """Reply to the requests that list topics: GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206), GET_TOPICS_BY_CLUSTER (224),
    QUERY_TOPICS_BY_CONSUMER (343), those for system topics (304 and 305) and those for unit topics (311 to 313)."""

    topic_list: list[str] = field(default_factory=list)
    broker_addr: str | None = None


@dataclass(slots=True)
class GroupList(Body):
    """Reply to QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    group_list: list[str] = field(default_factory=list)


@dataclass(slots=True)
class KVTable(Body):
    """Reply to GET_BROKER_RUNTIME_INFO (28), REGISTER_BROKER (103) and GET_KVLIST_BY_NAMESPACE (219)."""

    table: dict[str, str] = field(default_factory=dict)


def why_no_order_conf(text: str) -> str | None:
    """The error in `brokerName:queues;...`, as clients of ordered topics read it; None if there is none."""
    for part in text.split(";"):
        name, colon, queues = part.partition(":")
        if not (colon and name and not any(map(str.isspace, name)) and queues.isascii() and queues.isdigit()):
            return "an order conf is brokerName1:num;brokerName2:num"
        if not 0 < int(queues[:9]) <= ORDER_QUEUES_MAX or len(queues) > ORDER_DIGITS_MAX:
            return f"a broker has 1 to {ORDER_QUEUES_MAX} queues of a topic"
    return None
