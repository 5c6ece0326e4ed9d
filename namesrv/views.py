"""What clients ask of the route table, as the bodies they read.

Invariant: nothing here changes the table, and a body shares no mutable part with it beyond its own encoding. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from namesrv.routes import RouteTable
from remoting.bodies.routes import (
    BrokerMemberGroup,
    ClusterInfo,
    GetBrokerMemberGroupBody,
    QueueData,
    TopicList,
    TopicRouteData,
)

FLAG_UNIT = 1
FLAG_UNIT_SUB = 2


def route_of(table: RouteTable, topic: str, order_conf: str | None) -> TopicRouteData | None:
    """Where a topic's queues are and who serves them; None when nobody does."""
    queues = table.topics.get(topic)
    if not queues:
        return None
    groups = [
        replace(table.groups[name], broker_addrs=dict(sorted(table.groups[name].broker_addrs.items())))
        for name in queues
    ]
    return TopicRouteData(list(queues.values()), groups, order_topic_conf=order_conf)


def cluster_info(table: RouteTable) -> ClusterInfo:
    """Every group and cluster."""
    return ClusterInfo(table.groups, {cluster: list(names) for cluster, names in table.clusters.items()})


def member_group(table: RouteTable, cluster: str, broker_name: str) -> GetBrokerMemberGroupBody:
    """The members of one group; of an unknown one, none."""
    group = table.groups.get(broker_name)
    if group is None:
        return GetBrokerMemberGroupBody(BrokerMemberGroup(cluster, broker_name))
    return GetBrokerMemberGroupBody(BrokerMemberGroup(group.cluster, broker_name, group.broker_addrs))


def all_topics(table: RouteTable) -> TopicList:
    """The names of all topics."""
    return TopicList(list(table.topics))


def topics_of_cluster(table: RouteTable, cluster: str) -> TopicList:
    """The names of the topics that some group of a cluster serves."""
    names = table.clusters.get(cluster, {})
    return TopicList(
        [topic for topic, queues in table.topics.items() if any(name in queues for name in names)]
    )


def system_topics(table: RouteTable) -> TopicList:
    """The topics named after clusters and groups, and the address of some broker to ask for more."""
    address = next((addr for group in table.groups.values() for addr in group.broker_addrs.values()), None)
    return TopicList([*table.clusters, *table.groups], address)


def unit_topics(table: RouteTable) -> TopicList:
    """Topics that belong to a unit."""
    return _by_flag(table, lambda flag: bool(flag & FLAG_UNIT))


def unit_sub_topics(table: RouteTable) -> TopicList:
    """Topics that a unit subscribes to."""
    return _by_flag(table, lambda flag: bool(flag & FLAG_UNIT_SUB))


def unit_sub_ununit_topics(table: RouteTable) -> TopicList:
    """Topics that a unit subscribes to and that belong to none."""
    return _by_flag(table, lambda flag: bool(flag & FLAG_UNIT_SUB) and not flag & FLAG_UNIT)


def _by_flag(table: RouteTable, wanted: Callable[[int], bool]) -> TopicList:
    def first(queues: dict[str, QueueData]) -> QueueData:
        return next(iter(queues.values()))

    return TopicList(
        [topic for topic, queues in table.topics.items() if wanted(first(queues).topic_sys_flag)]
    )
