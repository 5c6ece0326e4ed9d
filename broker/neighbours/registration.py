"""Registration of this broker at the name servers: after every change, and completely every registerNameServerPeriod (30 s).

A topic that is created or changed on a master is sent alone (REGISTER_TOPIC_IN_NAMESRV, 217). After other changes all topics
are sent (REGISTER_BROKER, 103); for deletions at most once a second. Upstream: TopicConfigManager.registerBrokerData,
enableSingleTopicRegister.

Invariant: nothing is registered before the first role. A topic is sent alone only after a full registration in this role. Each
name server has its own task and its own lasting connection, so a name server that hangs delays no other. The end of the
connection unregisters this broker at the name server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from broker.role.membership import Membership
from broker.tables.topics import PERM_READ_WRITE, Topics
from ha.service.replication import Replication
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure
from mqruntime.tasks import Tasks
from mqruntime.waking import wait_event
from remoting.bodies.registration import RegisterBrokerBody, body_crc32
from remoting.bodies.routes import QueueData, TopicRouteData
from remoting.bodies.topics import PERM_INHERIT, TopicConfigWrapper
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import HeaderError, RemotingError
from remoting.headers.admin import TopicHeader
from remoting.headers.nameserver import (
    RegisterBrokerHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerHeader,
)

logger = logging.getLogger("broker.registration")

RETRY_MS = 1_000
SINGLE_MAX = 32
"""If more topics than this have changed, all topics are sent."""
UNREGISTER_TIMEOUT_MS = 500
MASTER_ROLE_ID = 0


class News:
    """The changes that one name server has not received."""

    def __init__(self) -> None:
        self.all = True
        self.due_ms = 0
        """The time of the next full registration."""
        self.topics: dict[str, None] = {}
        self._in_role: tuple[int | None, int] | None = None

    def take(self, role: tuple[int | None, int]) -> list[str] | None:
        """Remove and return the topics to send alone in this role; None if a full registration is needed. The caller adds
        topics again if the send fails."""
        topics, self.topics = [*self.topics], {}
        if self.all or self._in_role != role or len(topics) > SINGLE_MAX:
            self.all = False
            return None
        return topics

    def registered(self, role: tuple[int | None, int], due_ms: int) -> None:
        """Record a full registration in this role, and the time of the next."""
        self._in_role, self.due_ms = role, due_ms


class Registration:
    """The registration, under the id that `membership` has for its role. `on_master(address, ha_address)` is called with the
    master that a name server knows."""

    def __init__(
        self,
        membership: Membership,
        ha: Replication,
        *,
        client: RemotingClient,
        clock: Clock,
        name_servers: list[str],
        period_ms: int,
        timeout_ms: int,
        topics: Topics,
        permission: Callable[[], int],
        on_master: Callable[[str, str], None],
        needs_master: Callable[[], bool],
    ) -> None:
        """Topics are sent with at most `permission()` (bits 2 for WRITE and 4 for READ). While `needs_master()`, registration
        is repeated quickly, because the answer names the master."""
        self._membership = membership
        self._ha = ha
        self._client = client
        self._clock = clock
        self._name_servers = name_servers
        self._period_ms = period_ms
        self._timeout_ms = timeout_ms
        self._topics = topics
        self._permission = permission
        self._on_master = on_master
        self._needs_master = needs_master
        self._listed_as_master: Callable[[], bool] = lambda: False
        self._wakes = {name_server: asyncio.Event() for name_server in name_servers}
        self._news = {name_server: News() for name_server in name_servers}
        self._failures = {name_server: RepeatedFailure() for name_server in name_servers}

    def start(self, tasks: Tasks) -> None:
        for name_server in self._name_servers:
            tasks.start(self._run(name_server), name=f"registration at {name_server}")

    def silent_while(self, listed_as_master: Callable[[], bool]) -> None:
        """Send nothing while `listed_as_master()`: this broker is listed as master until the new master has registered, because
        a set without a master has no routes."""
        self._listed_as_master = listed_as_master

    def soon(self) -> None:
        """Register soon, because data that name servers have has changed."""
        for name_server, wake in self._wakes.items():
            self._news[name_server].all = True
            wake.set()

    def topics_changed(self, names: Iterable[str]) -> None:
        """Register these topics soon; if there are no names, register all topics."""
        if not (changed := [*names]):
            self.soon()
            return
        for name_server, wake in self._wakes.items():
            self._news[name_server].topics |= dict.fromkeys(changed)
            wake.set()

    async def unregister(self) -> None:
        """Unregister from all name servers that answer quickly."""
        us, role_id = self._membership, self._membership.role_id
        if role_id is None:
            return
        header = UnregisterBrokerHeader(us.broker_name, us.address, us.cluster_name, role_id)
        await asyncio.gather(*(self._unregister(name_server, header) for name_server in self._name_servers))

    async def _unregister(self, name_server: str, header: UnregisterBrokerHeader) -> None:
        if not self._client.connected(name_server):
            return
        request = RemotingCommand.request(RequestCode.UNREGISTER_BROKER, header)
        try:
            await self._client.call(name_server, request, UNREGISTER_TIMEOUT_MS)
        except RemotingError as error:
            logger.warning("not unregistered", extra=fields(name_server=name_server, why=error))

    async def _run(self, name_server: str) -> None:
        wake, news = self._wakes[name_server], self._news[name_server]
        while True:
            wake.clear()
            wait_ms = self._period_ms
            role_id = self._membership.role_id
            if role_id is not None and not self._listed_as_master():
                done = await self._send_changes(name_server, role_id, news)
                again = not done or self._needs_master()
                wait_ms = RETRY_MS if again else max(news.due_ms - self._clock.monotonic_ms(), 0)
            await wait_event(wake, wait_ms)

    async def _send_changes(self, name_server: str, role_id: int, news: News) -> bool:
        """Send pending changes. Returns False if this must be repeated."""
        if self._needs_master() or self._clock.monotonic_ms() >= news.due_ms:
            news.all = True
        role = self._role
        topics = news.take(role)
        if topics is None:
            done = await self._register(name_server, role_id)
            if done:
                news.registered(role, self._clock.monotonic_ms() + self._period_ms)
        else:
            done = await self._register_topics(name_server, topics)
        news.all |= not done
        return done

    @property
    def _role(self) -> tuple[int | None, int]:
        return self._membership.role_id, self._membership.master_epoch

    async def _register_topics(self, name_server: str, names: Iterable[str]) -> bool:
        """Send each topic alone, except deleted topics. Returns False if all topics must be sent."""
        if self._membership.role_id != MASTER_ROLE_ID:
            return True  # name servers take topics from masters
        for name in names:
            topic = self._topics.find(name)
            if topic is None:
                news = self._news[name_server]
                news.due_ms = min(news.due_ms, self._clock.monotonic_ms() + RETRY_MS)
                continue
            perm = topic.perm & (self._permission() | PERM_INHERIT)
            queues = topic.read_queue_nums, topic.write_queue_nums
            queue_data = QueueData(self._membership.broker_name, *queues, perm, topic.topic_sys_flag)
            body = TopicRouteData([queue_data]).encode()
            request = RemotingCommand.request(RequestCode.REGISTER_TOPIC_IN_NAMESRV, TopicHeader(name), body)
            try:
                reply = await self._client.call(name_server, request, self._timeout_ms)
            except RemotingError:
                return False
            if reply.code != ResponseCode.SUCCESS:
                return False
        return True

    def _topic_table(self) -> TopicConfigWrapper:
        """The topics with the permissions that clients have here."""
        table, allowed = self._topics.wrapper(), self._permission() | PERM_INHERIT
        if allowed & PERM_READ_WRITE != PERM_READ_WRITE:
            rows = table.topic_config_table
            table.topic_config_table = {
                name: replace(row, perm=row.perm & allowed) for name, row in rows.items()
            }
        return table

    async def _register(self, name_server: str, role_id: int) -> bool:
        us, body = self._membership, RegisterBrokerBody(self._topic_table()).encode()
        header = RegisterBrokerHeader(
            us.broker_name,
            us.address,
            us.cluster_name,
            self._ha.address,
            role_id,
            enable_acting_master=False,
            body_crc32=body_crc32(body),
        )
        request = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body)
        failure = self._failures[name_server]
        try:
            reply = await self._client.call(name_server, request, self._timeout_ms)
            said = RegisterBrokerResponseHeader.from_ext(reply.ext)
        except (RemotingError, HeaderError) as error:
            if failure.failed(type(error), self._clock.monotonic_ms()):
                logger.warning("not registered, retrying", extra=fields(name_server=name_server, why=error))
            return False
        if reply.code != ResponseCode.SUCCESS:
            if failure.failed(reply.code, self._clock.monotonic_ms()):
                logger.warning(
                    "registration refused",
                    extra=fields(name_server=name_server, code=reply.code, remark=reply.remark or ""),
                )
            return False
        if (lasted_ms := failure.recovered(self._clock.monotonic_ms())) is not None:
            logger.info("registered again", extra=fields(name_server=name_server, after_ms=lasted_ms))
        if said.master_addr and said.ha_server_addr:
            self._on_master(said.master_addr, said.ha_server_addr)
        return True
