"""Consumer groups: their settings, their offsets, their members.

Invariant: offsets and members are read from masters. A slave's copies are used only if there is no master."""

from __future__ import annotations

from dataclasses import dataclass

from mqadmin.admin import AdminClient, body_of
from mqadmin.calls.topics import RETRY_PREFIX, all_topics
from mqadmin.errors import AdminError, RequestRefused
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.heartbeats import Connection, ConsumerConnection
from remoting.bodies.offsets import ConsumerOffsetWrapper
from remoting.bodies.queues import ConsumeStats, MessageQueue, OffsetWrapper, ResetOffsetBody
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.admin import (
    ConsumerGroupHeader,
    DeleteSubscriptionGroupHeader,
    GetConsumeStatsHeader,
    GroupHeader,
)
from remoting.headers.offsets import ResetOffsetHeader


@dataclass(slots=True)
class GroupProgress:
    """Progress of one group in all its queues. Rates are in messages per second."""

    offsets: dict[MessageQueue, OffsetWrapper]
    consume_tps: float

    @property
    def diff_total(self) -> int:
        return sum(row.broker_offset - row.consumer_offset for row in self.offsets.values())

    @property
    def inflight_total(self) -> int:
        return sum(row.pull_offset - row.consumer_offset for row in self.offsets.values())


async def one_of_each_set(client: AdminClient, namesrv: str, cluster: str | None = None) -> list[str]:
    """A member of each broker set of one cluster, or of all clusters: the master, or a slave if the set has no master now.
    Raises `AdminError` if no broker is registered."""
    info = await client.cluster_info(namesrv)
    found = [row.addresses[min(row.addresses)] for row in info.sets_of(cluster) if row.addresses]
    if not found:
        where = f"of cluster {cluster}" if cluster else "at all"
        raise AdminError(f"{namesrv} knows no broker {where}; clusterList shows what is registered")
    return found


async def progress(
    client: AdminClient, masters: list[str], group: str, topic: str | None = None
) -> GroupProgress:
    """The committed offsets of a group and the ends of its queues: GET_CONSUME_STATS (208). An unknown group has no queues."""
    found = GroupProgress({}, 0.0)
    for master in masters:
        reply = await client.ask(master, RequestCode.GET_CONSUME_STATS, GetConsumeStatsHeader(group, topic))
        stats = body_of(ConsumeStats, master, reply)
        found.offsets |= {
            queue: row
            for queue, row in stats.offset_table.items()
            if not queue.topic.startswith(RETRY_PREFIX)
        }
        found.consume_tps += stats.consume_tps
    return found


async def names(client: AdminClient, namesrv: str, masters: list[str]) -> list[str]:
    """Every group that has a retry topic or has committed an offset, sorted."""
    found = {
        topic.removeprefix(RETRY_PREFIX)
        for topic in await all_topics(client, namesrv)
        if topic.startswith(RETRY_PREFIX)
    }
    for master in masters:
        reply = await client.ask(master, RequestCode.GET_ALL_CONSUMER_OFFSET)
        table = body_of(ConsumerOffsetWrapper, master, reply).offset_table
        found |= {key.partition("@")[2] for key in table if "@" in key}
    return sorted(found)


async def consumers(client: AdminClient, masters: list[str], group: str) -> ConsumerConnection | None:
    """The consumers that are connected for a group, each once: GET_CONSUMER_CONNECTION_LIST (203). None if there is none."""
    found: ConsumerConnection | None = None
    members: dict[str, Connection] = {}
    for master in masters:
        try:
            reply = await client.ask(
                master, RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader(group)
            )
        except RequestRefused as error:
            if error.code in (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR):
                continue
            raise
        found = body_of(ConsumerConnection, master, reply)
        members |= {member.client_id: member for member in found.connection_set}
    if found is not None:
        found.connection_set = [members[name] for name in sorted(members)]
    return found


async def put(client: AdminClient, broker: str, group: SubscriptionGroupConfig) -> None:
    """Create or change a group on one broker: UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)."""
    await client.ask(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group.encode())


async def settings_of(client: AdminClient, broker: str, group: str) -> SubscriptionGroupConfig | None:
    """The settings of a group on one broker: GET_SUBSCRIPTIONGROUP_CONFIG (352). None if the broker does not have the group."""
    absent = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    asked = client.ask_for(
        broker, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupHeader(group), absent=absent
    )
    reply = await asked
    return None if reply is None else body_of(SubscriptionGroupConfig, broker, reply)


async def is_known(client: AdminClient, broker: str, group: str) -> bool:
    """Whether one broker has the group."""
    absent = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    asked = client.ask_for(
        broker, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupHeader(group), absent=absent
    )
    return await asked is not None


async def delete(client: AdminClient, broker: str, group: str, *, clean_offset: bool) -> None:
    """Delete a group, and its offsets if requested, from one broker: DELETE_SUBSCRIPTIONGROUP (207)."""
    header = DeleteSubscriptionGroupHeader(group, clean_offset)
    await client.ask(broker, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)


async def reset(client: AdminClient, broker: str, header: ResetOffsetHeader) -> dict[MessageQueue, int]:
    """Move a group on one broker: INVOKE_BROKER_TO_RESET_OFFSET (222). Returns the new offset of each queue. The broker rejects
    commits by the group until the group's consumers have received the new offset."""
    reply = await client.ask(
        broker,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        header,
        advice={
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "create it with updateSubGroup, or check its name",
            ResponseCode.TOPIC_NOT_EXIST: "create the topic with updateTopic, or check its name",
        },
    )
    return body_of(ResetOffsetBody, broker, reply).offset_table
