"""Answers of the route table to clients, as encoded bodies.

Invariant: nothing here changes the table, and an encoded body shares no mutable part with it. A body that is made in steps has
all rows that exist during all of its steps. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import orjson

from mqruntime.slices import Steps
from namesrv.routes import RouteTable
from remoting.bodies.routes import (
    BrokerMemberGroup,
    ClusterInfo,
    GetBrokerMemberGroupBody,
    QueueData,
    TopicList,
    TopicRouteData,
)

TOPICS_A_STEP, GROUPS_A_STEP = 5_000, 200
GROUPS_BEGIN, GROUPS_END = b'{"brokerAddrTable":{', b'},"clusterAddrTable":{}}'
FLAG_UNIT = 1
FLAG_UNIT_SUB = 2


def route_of(table: RouteTable, topic: str, order_conf: str | None) -> TopicRouteData | None:
    """The queues of a topic and the brokers that serve these queues; None if the topic has no queues."""
    queues = table.topics.get(topic)
    if not queues:
        return None
    groups = [
        replace(table.groups[name], broker_addrs=dict(sorted(table.groups[name].broker_addrs.items())))
        for name in queues
    ]
    return TopicRouteData(list(queues.values()), groups, order_topic_conf=order_conf)


def cluster_info(table: RouteTable) -> Steps[bytes]:
    """An encoded ClusterInfo with every group and cluster."""
    groups, parts = list(table.groups), list[bytes]()
    for at in range(0, len(groups), GROUPS_A_STEP):
        step = {name: table.groups[name] for name in groups[at : at + GROUPS_A_STEP] if name in table.groups}
        parts.append(ClusterInfo(step, {}).encode().removeprefix(GROUPS_BEGIN).removesuffix(GROUPS_END))
        yield
    clusters = ClusterInfo({}, {cluster: list(names) for cluster, names in table.clusters.items()}).encode()
    assert clusters.startswith(GROUPS_BEGIN), "brokerAddrTable is its first member"
    return GROUPS_BEGIN + b",".join(filter(None, parts)) + clusters.removeprefix(GROUPS_BEGIN)


def member_group(table: RouteTable, cluster: str, broker_name: str) -> GetBrokerMemberGroupBody:
    """The members of one group; an unknown group has no members."""
    group = table.groups.get(broker_name)
    if group is None:
        return GetBrokerMemberGroupBody(BrokerMemberGroup(cluster, broker_name))
    return GetBrokerMemberGroupBody(BrokerMemberGroup(group.cluster, broker_name, group.broker_addrs))


def all_topics(table: RouteTable) -> Steps[bytes]:
    """The names of all topics."""
    return _topic_list(table, lambda queues: True)


def topics_of_cluster(table: RouteTable, cluster: str) -> Steps[bytes]:
    """The names of the topics that some group of a cluster serves."""
    names = frozenset(table.clusters.get(cluster, ()))
    return _topic_list(table, lambda queues: not names.isdisjoint(queues))


def system_topics(table: RouteTable) -> TopicList:
    """The topics named after clusters and groups, and the address of any broker, to which a client sends further requests."""
    address = next((addr for group in table.groups.values() for addr in group.broker_addrs.values()), None)
    return TopicList([*table.clusters, *table.groups], address)


def unit_topics(table: RouteTable) -> Steps[bytes]:
    """Topics that belong to a unit."""
    return _by_flag(table, lambda flag: bool(flag & FLAG_UNIT))


def unit_sub_topics(table: RouteTable) -> Steps[bytes]:
    """Topics that a unit subscribes to."""
    return _by_flag(table, lambda flag: bool(flag & FLAG_UNIT_SUB))


def unit_sub_ununit_topics(table: RouteTable) -> Steps[bytes]:
    """Topics that a unit subscribes to and that belong to no unit."""
    return _by_flag(table, lambda flag: bool(flag & FLAG_UNIT_SUB) and not flag & FLAG_UNIT)


def _by_flag(table: RouteTable, wanted: Callable[[int], bool]) -> Steps[bytes]:
    return _topic_list(table, lambda queues: wanted(next(iter(queues.values())).topic_sys_flag))


def _topic_list(table: RouteTable, wanted: Callable[[dict[str, QueueData]], bool]) -> Steps[bytes]:
    """An encoded TopicList of the topics that exist and are `wanted` when their step runs."""
    names, parts = list(table.topics), list[bytes]()
    for at in range(0, len(names), TOPICS_A_STEP):
        step = names[at : at + TOPICS_A_STEP]
        found = [name for name in step if (queues := table.topics.get(name)) and wanted(queues)]
        parts.append(orjson.dumps(found)[1:-1])
        yield
    return b'{"topicList":[%b]}' % b",".join(filter(None, parts))
