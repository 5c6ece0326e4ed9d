"""One member of a consumer group: its heartbeats, and its share of the queues. Upstream: MQClientInstance, RebalanceImpl.

A member sends heartbeats to all brokers of its topics. It asks one of them for the group's members, and allocates the queues by
the same rule as the others, so that no two members read a queue for longer than it takes them to hear of each other. It
rebalances when a broker says that the group has changed (NOTIFY_CONSUMER_IDS_CHANGED, 40), and every `REBALANCE_MS`.

Invariant: a queue is in the share of this member only if its last answer about the members, and its last route, say so. While
no broker answers, it keeps its share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from functools import partial

from mqclient.errors import RouteUnknown
from mqclient.route import MessageQueue, TopicRoute
from mqclient.routetable import TopicRoutes
from mqclient.together import together
from mqruntime.clock import Clock
from mqruntime.log import fields
from remoting.allocation import Allocate, allocated
from remoting.bodies.heartbeats import ConsumerData, ConsumerIdList, HeartbeatData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, RemotingError
from remoting.headers.admin import ConsumerGroupHeader, UnregisterClientHeader

logger = logging.getLogger("mqclient")

HEARTBEAT_MS = 30_000
"""Brokers forget a client after two minutes without a heartbeat."""
REBALANCE_MS = 20_000
SOON_MS = 1_000
"""Time to the next rebalance while a route, a broker or an answer is missing."""
PAUSE_MS = 200
"""Rebalances that are asked for begin at least this long apart."""
SETTLED_MS = 1_000
"""A broker that has just become master knows a member when its heartbeat comes. So for this long after the first heartbeat of
this member, members that were known before count as well."""
HEARTBEAT_WAIT_MS = 300
"""A rebalance waits so long for brokers that do not answer."""
CALL_TIMEOUT_MS = 3_000


class GroupMember:
    """The member `consumer.group_name` with this client id. `changed` is called with its share whenever the share is another
    one. `topics` of a group whose queues all members read (`is_broadcast`) are not shared."""

    def __init__(
        self,
        client_id: str,
        consumer: ConsumerData,
        allocate: Allocate,
        changed: Callable[[set[MessageQueue]], Awaitable[None]],
        *,
        routes: TopicRoutes,
        client: RemotingClient,
        clock: Clock,
    ) -> None:
        self.group = consumer.group_name
        self.topics = [data.topic for data in consumer.subscription_data_set]
        self._client_id = client_id
        self._heartbeat = HeartbeatData(client_id, [], [consumer]).encode()
        self._is_broadcast = consumer.message_model == "BROADCASTING"
        self._allocate = allocate
        self._changed = changed
        self._routes = routes
        self._client = client
        self._clock = clock
        self._wake = asyncio.Event()
        self._shares: dict[str, set[MessageQueue]] = {}
        """By topic."""
        self._accepted_ms: dict[str, tuple[int, int]] = {}
        """By broker: when the first and the last heartbeat over the present connection were accepted."""
        self._members: frozenset[str] = frozenset()
        """The members in the last answer of a broker that has settled."""
        self._introducing: dict[str, asyncio.Task[None]] = {}

    @property
    def share(self) -> set[MessageQueue]:
        return set().union(*self._shares.values())

    def rebalance_soon(self) -> None:
        """Rebalance, because the group has changed, or a broker's role."""
        self._wake.set()

    def disconnected(self, address: str) -> None:
        """The connection to a broker has ended, which forgets this member with it."""
        if self._accepted_ms.pop(address, None) is not None:
            self._wake.set()

    async def run(self) -> None:
        """Stay in the group until cancelled."""
        while True:
            self._wake.clear()
            is_whole = await self.rebalance()
            await asyncio.sleep(PAUSE_MS / 1000)
            with suppress(TimeoutError):
                async with asyncio.timeout((REBALANCE_MS if is_whole else SOON_MS) / 1000):
                    await self._wake.wait()

    async def rebalance(self) -> bool:
        """Send the heartbeats that are due, and take the share that is this member's now. Returns whether each topic has a
        route and an answer of a broker that has settled, and each broker knows this member."""
        routes: dict[str, TopicRoute] = {}
        for topic in self.topics:
            with suppress(RouteUnknown):
                routes[topic] = await self._routes.get(topic)
        brokers = {
            address
            for route in routes.values()
            for each in route.addresses.values()
            for address in each.values()
        }
        await self._introduce(brokers)
        is_whole = len(routes) == len(self.topics) and brokers <= self._accepted_ms.keys()
        for topic, route in routes.items():
            if self._is_broadcast:
                self._shares[topic] = set(route.read_queues)
                continue
            members = await self._members_at(route)
            is_whole = is_whole and members == self._members and self._client_id in members
            if self._client_id in members:
                found = allocated(self._allocate, self._client_id, [*members], route.read_queues)
                self._shares[topic] = set(found)
        await self._changed(self.share)
        return is_whole

    async def leave(self) -> None:
        """Leave the group at all brokers, which notify the other members. It is called when `run` has ended."""
        for task in self._introducing.values():
            task.cancel()
        header = UnregisterClientHeader(self._client_id, consumer_group=self.group)

        async def leave_at(address: str) -> None:
            with suppress(RemotingError):
                request = RemotingCommand.request(RequestCode.UNREGISTER_CLIENT, header)
                await self._client.call(address, request, CALL_TIMEOUT_MS)

        await together([leave_at(address) for address in self._accepted_ms])

    async def _introduce(self, addresses: Collection[str]) -> None:
        """Send heartbeats to the brokers that do not know this member, and to all whose last one is old."""
        now_ms = self._clock.monotonic_ms()
        for gone in self._accepted_ms.keys() - addresses:
            del self._accepted_ms[gone]
        due = [
            address
            for address in sorted(addresses)
            if now_ms - self._accepted_ms.get(address, (0, now_ms - HEARTBEAT_MS))[1] >= HEARTBEAT_MS
        ]
        for address in due:
            if address not in self._introducing:
                task = asyncio.create_task(self._send_heartbeat(address), name=f"heartbeat to {address}")
                self._introducing[address] = task
                task.add_done_callback(partial(self._introducing.pop, address))
        if self._introducing:
            await asyncio.wait(self._introducing.values(), timeout=HEARTBEAT_WAIT_MS / 1000)

    async def _send_heartbeat(self, address: str) -> None:
        try:
            beat = RemotingCommand.request(RequestCode.HEART_BEAT, None, self._heartbeat)
            reply = await self._client.call(address, beat, CALL_TIMEOUT_MS)
        except RemotingError as error:
            logger.info("heartbeat failed", extra=fields(group=self.group, broker=address, why=error))
            return
        if reply.code != ResponseCode.SUCCESS:
            why = f"{reply.code} {reply.remark}"
            logger.warning("heartbeat refused", extra=fields(group=self.group, broker=address, why=why))
        elif self._client.connected(address):
            now_ms = self._clock.monotonic_ms()
            self._accepted_ms[address] = (self._accepted_ms.get(address, (now_ms, 0))[0], now_ms)

    async def _members_at(self, route: TopicRoute) -> frozenset[str]:
        """The group's members, as the broker knows them that has known this member for longest. Empty if none answers."""
        for address in self._brokers_to_ask(route):
            ids = await self._ids_at(address)
            if ids is None:
                continue
            since_ms, _ = self._accepted_ms.get(address, (self._clock.monotonic_ms(), 0))
            if self._clock.monotonic_ms() - since_ms < SETTLED_MS and self._members:
                return self._members.union(ids)
            self._members = frozenset(ids)
            return self._members
        return frozenset()

    def _brokers_to_ask(self, route: TopicRoute) -> Iterable[str]:
        """Masters first, of them those that know this member for longest, and then slaves."""
        masters = [address for name in route.addresses if (address := route.master(name)) is not None]
        slaves = [address for name in route.addresses for address in route.slaves(name)]
        known = [address for address in masters if address in self._accepted_ms]
        known.sort(key=lambda address: self._accepted_ms[address][0])
        return [*known, *(address for address in slaves if address in self._accepted_ms)]

    async def _ids_at(self, address: str) -> list[str] | None:
        """The ids of the members that the broker knows; None if it does not answer."""
        request = RemotingCommand.request(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader(self.group)
        )
        try:
            reply = await self._client.call(address, request, CALL_TIMEOUT_MS)
            if reply.code == ResponseCode.SUCCESS:
                return ConsumerIdList.decode(reply.body).consumer_id_list
        except (RemotingError, BodyError) as error:
            logger.info("members unknown", extra=fields(group=self.group, broker=address, why=error))
        return None
