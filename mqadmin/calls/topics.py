"""Reads the data of topics on brokers and name servers, and deletes topics.

Invariant: nothing is read from a slave if the set has a master."""

from __future__ import annotations

from typing import NamedTuple

from mqadmin.admin import AdminClient, body_of, split_addresses
from mqadmin.errors import AdminError, RequestRefused
from mqadmin.replies import BrokerSet, TopicSettings
from remoting.bodies.queues import TopicStatsTable
from remoting.bodies.routes import GroupList, TopicList
from remoting.bodies.topics import TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.admin import TopicHeader
from remoting.headers.nameserver import DeleteTopicInNamesrvHeader

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"


class Holder(NamedTuple):
    """The member of a broker set that is asked about a topic."""

    cluster: str
    broker_name: str
    address: str


async def all_topics(client: AdminClient, namesrv: str) -> list[str]:
    """Every topic that the name server knows, in its order: GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206)."""
    address, reply = await client.ask_any(namesrv, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    return body_of(TopicList, address, reply).topic_list


async def holders(client: AdminClient, namesrv: str, topic: str, cluster: str | None = None) -> list[Holder]:
    """One member of each broker set that has the topic: the master if there is one. The members come from the topic's route:
    GET_ROUTEINFO_BY_TOPIC (105)."""
    route = await client.topic_route(namesrv, topic)
    sets = [BrokerSet.from_json(row) for row in route.get("brokerDatas") or ()]
    found = [
        Holder(row.cluster, row.broker_name, row.addresses[min(row.addresses)])
        for row in sorted(sets, key=lambda row: row.broker_name)
        if row.addresses and cluster in (None, row.cluster)
    ]
    if not found:
        where = f"of cluster {cluster} " if cluster else ""
        raise AdminError(f"no broker {where}has topic {topic} now; topicRoute shows where it is")
    return found


async def must_have(client: AdminClient, namesrv: str, topic: str, broker_name: str | None) -> None:
    """Raise `AdminError` for a topic that no broker has, or that this broker set does not have."""
    names = {holder.broker_name for holder in await holders(client, namesrv, topic)}
    if broker_name is not None and broker_name not in names:
        raise AdminError(f"broker set {broker_name} has no topic {topic}; topicRoute shows where it is")


async def statistics(client: AdminClient, broker: str, topic: str) -> TopicStatsTable:
    """The offsets of a topic's queues on one broker: GET_TOPIC_STATS_INFO (202)."""
    reply = await client.ask(broker, RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic))
    return body_of(TopicStatsTable, broker, reply)


async def settings_of(client: AdminClient, broker: str, topic: str) -> TopicSettings:
    """The settings of a topic on one broker, GET_TOPIC_CONFIG (351), in a form that can be sent back to the broker."""
    reply = await client.ask(broker, RequestCode.GET_TOPIC_CONFIG, TopicHeader(topic))
    known = body_of(TopicConfig, broker, reply)
    return TopicSettings(
        known.topic_name,
        known.read_queue_nums,
        known.write_queue_nums,
        known.perm,
        known.order,
        known.topic_sys_flag,
    )


async def groups_of(client: AdminClient, broker: str, topic: str) -> list[str]:
    """The groups that consume a topic on one broker: QUERY_TOPIC_CONSUME_BY_WHO (300)."""
    reply = await client.ask(broker, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicHeader(topic))
    return body_of(GroupList, broker, reply).group_list


async def delete_on_broker(client: AdminClient, broker: str, topic: str) -> None:
    """Delete a topic from one broker with DELETE_TOPIC_IN_BROKER (215). The broker's slaves follow. A missing topic is no
    error."""
    await client.ask(broker, RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic))


async def delete_on_name_servers(
    client: AdminClient, namesrv: str, topic: str, cluster: str | None = None
) -> None:
    """Delete a topic's route from every name server of the list with DELETE_TOPIC_IN_NAMESRV (216)."""
    for address in split_addresses(namesrv):
        await client.ask(
            address, RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicInNamesrvHeader(topic, cluster)
        )


async def is_routed(client: AdminClient, namesrv: str, topic: str) -> bool:
    """Whether the name server has a route for the topic."""
    try:
        await client.topic_route(namesrv, topic)
    except RequestRefused as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return False
        raise
    return True
