"""Topics, made, described and deleted by programs and tests. Upstream: DefaultMQAdminExt.

Invariant: each change may be repeated without harm. If a call fails, its error names the broker set that has not changed; sets
before it have."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from mqclient.consumer import PullConsumer
from mqclient.errors import AdminFailed, RouteUnknown, in_short
from mqclient.route import AUTO_CREATE_TOPIC, MASTER_ID, PERM_READ, PERM_WRITE, MessageQueue
from mqclient.routetable import TopicRoutes
from mqruntime.clock import Clock
from remoting.bodies.routes import ClusterInfo, TopicList, TopicRouteData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, RemotingError
from remoting.header import Header
from remoting.headers.admin import CreateTopicHeader, TopicHeader
from remoting.headers.nameserver import DeleteTopicInNamesrvHeader, GetRouteInfoHeader

TIMEOUT_MS = 10_000
"""Brokers answer a change when their replicas have it."""
SEEN_MS_MAX, LOOK_MS = 10_000, 50
"""A new topic is waited for until name servers know it."""


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The offsets of one queue: `first` is its first message, `end` is one beyond its last readable one."""

    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first


class Admin:
    """Made by `Client.admin`. With access control the client needs the rights for what it does."""

    def __init__(
        self, consumer: PullConsumer, *, routes: TopicRoutes, client: RemotingClient, clock: Clock
    ) -> None:
        self._consumer = consumer
        self._routes = routes
        self._client = client
        self._clock = clock

    async def topics(self) -> list[str]:
        """The names of all topics, also of groups' retry topics. Raises AdminFailed."""
        reply = await self._ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None)
        try:
            return sorted(TopicList.decode(reply.body).topic_list)
        except BodyError as error:
            raise AdminFailed("topics", f"unreadable answer: {error}") from error

    async def create_topic(self, topic: str, *, queues: int = 4, cluster: str | None = None) -> None:
        """Create the topic with so many queues on each broker set (of `cluster`), or add queues to it, and wait until clients
        find it. Raises AdminFailed, also if the topic has more queues: nobody would read the messages in the others. Raises
        ValueError for a number of queues below 1."""
        if queues < 1:
            raise ValueError(f"a topic has at least one queue, not {queues}")
        masters = await self._masters(cluster)
        for name, present in (await self._queues_of(topic)).items():
            if name in masters and present > queues:
                why = f"{topic} has {present} queues, and {queues} would hide messages; `mqadmin updateTopic` can do it"
                raise AdminFailed(name, why)
        header = CreateTopicHeader(topic, AUTO_CREATE_TOPIC, queues, queues, PERM_READ | PERM_WRITE)
        for name, address in masters.items():
            await self._change(name, address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        until_ms = self._clock.monotonic_ms() + SEEN_MS_MAX
        while not await self._is_seen(topic, masters, queues):
            if self._clock.monotonic_ms() > until_ms:
                raise AdminFailed(topic, "brokers have it, and name servers do not know it yet; try again")
            await asyncio.sleep(LOOK_MS / 1000)

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete the topic and its messages on each broker set (of `cluster`), and then its routes. A topic that does not exist
        is no error. Raises AdminFailed."""
        for name, address in (await self._masters(cluster)).items():
            await self._change(name, address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic))
        header = DeleteTopicInNamesrvHeader(topic, cluster)
        for address in self._routes.name_servers:
            await self._change(address, address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        self._routes.renew(topic)

    async def describe_topic(self, topic: str) -> dict[MessageQueue, QueueRange]:
        """The offsets of each readable queue. Raises RouteUnknown, PullFailed."""
        return {
            queue: QueueRange(await self._consumer.min_offset(queue), await self._consumer.max_offset(queue))
            for queue in await self._consumer.queues(topic)
        }

    async def _is_seen(self, topic: str, masters: Mapping[str, str], queues: int) -> bool:
        self._routes.renew(topic)
        try:
            route = await self._routes.get(topic)
        except RouteUnknown:
            return False
        wanted = {MessageQueue(topic, name, number) for name in masters for number in range(queues)}
        return wanted <= {*route.write_queues}

    async def _queues_of(self, topic: str) -> dict[str, int]:
        """Broker set -> the number of the topic's readable queues there, as a name server knows now. Raises AdminFailed."""
        header = GetRouteInfoHeader(topic, accept_standard_json_only=True)
        reply = await self._ask_name_server(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, header, also=ResponseCode.TOPIC_NOT_EXIST
        )
        if reply.code == ResponseCode.TOPIC_NOT_EXIST:
            return {}
        try:
            rows = TopicRouteData.decode(reply.body).queue_datas
        except BodyError as error:
            raise AdminFailed(topic, f"unreadable answer: {error}") from error
        return {row.broker_name: row.read_queue_nums for row in rows}

    async def _masters(self, cluster: str | None) -> dict[str, str]:
        """Broker set -> address of its master. Raises AdminFailed."""
        reply = await self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO, None)
        try:
            info = ClusterInfo.decode(reply.body)
        except BodyError as error:
            raise AdminFailed("cluster", f"unreadable answer: {error}") from error
        sets = {
            name: dict(row.broker_addrs)
            for name, row in sorted(info.broker_addr_table.items())
            if cluster in (None, row.cluster)
        }
        if not sets:
            raise AdminFailed(cluster or "cluster", "name servers know no broker set; is one running?")
        for name, addresses in sets.items():
            if MASTER_ID not in addresses:
                raise AdminFailed(name, "the broker set has no master at the moment; nothing was changed")
        return {name: addresses[MASTER_ID] for name, addresses in sets.items()}

    async def _ask_name_server(
        self, code: RequestCode, header: Header | None, *, also: int = ResponseCode.SUCCESS
    ) -> RemotingCommand:
        """The first answer of a name server with success, or the code `also`. Raises AdminFailed."""
        reasons: list[str] = []
        for address in self._routes.name_servers:
            try:
                reply = await self._client.call(address, RemotingCommand.request(code, header), TIMEOUT_MS)
            except RemotingError as error:
                reasons.append(str(error))
                continue
            if reply.code in (ResponseCode.SUCCESS, also):
                return reply
            reasons.append(f"{address} answered {reply.code} {in_short(reply.remark)}")
        raise AdminFailed("name servers", "; ".join(reasons))

    async def _change(self, name: str, address: str, code: RequestCode, header: Header) -> None:
        """Raises AdminFailed."""
        try:
            reply = await self._client.call(address, RemotingCommand.request(code, header), TIMEOUT_MS)
        except RemotingError as error:
            raise AdminFailed(name, str(error)) from error
        if reply.code != ResponseCode.SUCCESS:
            said = f"{address} answered {reply.code} {in_short(reply.remark)}"
            raise AdminFailed(name, said, reply.code)
