"""The routes that a client knows. When a send or read over a route has failed, the route is soon requested again.

Invariant: for each topic at most one request to the name servers is open, and renewals begin at least RETRY_MS apart, however
many sends fail. A failure that is reported to `renew` is followed by a request that begins after the failure, unless a route is
known and `asks_after_failures` is off."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from mqclient.errors import RouteUnknown, in_short
from mqclient.route import AUTO_CREATE_TOPIC, TopicRoute
from mqruntime.clock import Clock
from mqruntime.hostports import addresses_in
from remoting.bodies.routes import TopicRouteData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, RemotingError
from remoting.frame import FRAME_BYTES_MAX
from remoting.headers.nameserver import GetRouteInfoHeader

RETRY_MS = 40
AGE_MS_MAX = 30_000
NAMESRV_TIMEOUT_MS = 1000
DIALECT_BYTES_MAX = 512 << 10
"""Limit of a route that is not strict JSON, which name servers before 4.9.4 send. It is enough for thousands of broker sets,
and takes a second to read."""
CLOSED = "the client is closed"


@dataclass(slots=True)
class _TopicEntry:
    """The route of one topic. `asked_ms` is when the newest request began."""

    route: TopicRoute | None = None
    asked_ms: int | None = None
    asking: asyncio.Task[TopicRoute] | None = None
    stale: bool = False  # a failure was reported while a request was open
    again: asyncio.TimerHandle | None = None


class TopicRoutes:
    """Topic -> route. The name servers of a `host:port;host:port` list are asked in turn until one answers. A name server that
    does not answer is asked last from then on."""

    def __init__(
        self, namesrv: str, client: RemotingClient, clock: Clock, *, asks_after_failures: bool = True
    ) -> None:
        """Without `asks_after_failures`, a known route is renewed only when it is old, as by Java's clients by default. Raises
        ValueError if `namesrv` is no such list, because it would be asked for ever."""
        self._asks_after_failures = asks_after_failures
        self._namesrv = addresses_in(namesrv)
        if not self._namesrv:
            raise ValueError(
                f"{namesrv!r} names no name server; addresses look like 127.0.0.1:9876;127.0.0.1:9877"
            )
        self._client = client
        self._clock = clock
        self._entries: dict[str, _TopicEntry] = {}
        self.closed = False

    @property
    def name_servers(self) -> list[str]:
        """The addresses, the one that answered last first."""
        return list(self._namesrv)

    async def get(self, topic: str) -> TopicRoute:
        """The last known route. If none is known, it is requested. Raises `RouteUnknown`."""
        entry = self._entries.setdefault(topic, _TopicEntry())
        if entry.route is None:
            if self.closed:
                raise RouteUnknown(topic, CLOSED)
            return await self._answer(topic, self._ask(topic, entry))
        if self._clock.monotonic_ms() - (entry.asked_ms or 0) > AGE_MS_MAX:
            self._renew(topic, entry)
        return entry.route

    async def _answer(self, topic: str, asking: asyncio.Task[TopicRoute]) -> TopicRoute:
        """Wait for the result of `asking`. If this caller is cancelled, the request continues for the other callers."""
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            if not (asking.cancelled() and self.closed):
                raise
            raise RouteUnknown(topic, CLOSED) from None

    async def to_send(self, topic: str) -> TopicRoute:
        """The route for sending. If no broker has the topic yet, it has queues of the brokers that create a topic with its
        first message. Raises `RouteUnknown`. Upstream: DefaultMQProducerImpl.tryToFindTopicPublishInfo."""
        try:
            return await self.get(topic)
        except RouteUnknown as unknown:
            if not unknown.is_absent:
                raise
            try:
                return (await self.get(AUTO_CREATE_TOPIC)).of_new(topic)
            except RouteUnknown:
                raise unknown from None

    def renew(self, topic: str) -> None:
        """Renew a route that failed, now or RETRY_MS after the last request."""
        entry = self._entries.setdefault(topic, _TopicEntry())
        if self._asks_after_failures or entry.route is None:
            self._renew(topic, entry)
        model = self._entries.get(AUTO_CREATE_TOPIC)
        if entry.route is None and model is not None and self._asks_after_failures:
            self._renew(AUTO_CREATE_TOPIC, model)

    def _renew(self, topic: str, entry: _TopicEntry) -> None:
        if self.closed or entry.again is not None:
            return
        if entry.asking is not None:
            entry.stale = True
            return
        asked_ms = entry.asked_ms
        wait_ms = 0 if asked_ms is None else asked_ms + RETRY_MS - self._clock.monotonic_ms()
        if wait_ms <= 0:
            self._ask(topic, entry)
        else:
            entry.again = asyncio.get_running_loop().call_later(wait_ms / 1000, self._again, topic, entry)

    async def close(self) -> None:
        """Stop all requests. Callers that wait for a reply get RouteUnknown."""
        self.closed = True
        asking = [entry.asking for entry in self._entries.values() if entry.asking is not None]
        for entry in self._entries.values():
            if entry.again is not None:
                entry.again.cancel()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    def _again(self, topic: str, entry: _TopicEntry) -> None:
        entry.again = None
        self._ask(topic, entry)

    def _ask(self, topic: str, entry: _TopicEntry) -> asyncio.Task[TopicRoute]:
        if entry.asking is None:
            entry.asked_ms = self._clock.monotonic_ms()
            loop = asyncio.get_running_loop()
            entry.asking = loop.create_task(self._asked(topic), name=f"route of {topic}")
            entry.asking.add_done_callback(lambda task: self._answered(topic, entry, task))
        return entry.asking

    def _answered(self, topic: str, entry: _TopicEntry, task: asyncio.Task[TopicRoute]) -> None:
        entry.asking = None
        if not task.cancelled() and task.exception() is None:
            entry.route = task.result()
        if entry.stale:
            entry.stale = False
            self._renew(topic, entry)

    async def _asked(self, topic: str) -> TopicRoute:
        reasons: list[str] = []
        is_absent = False
        for address in list(self._namesrv):
            request = RemotingCommand.request(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(topic, accept_standard_json_only=True)
            )
            try:
                reply = await self._client.call(address, request, NAMESRV_TIMEOUT_MS)
                if reply.code == ResponseCode.SUCCESS:
                    return TopicRoute.of(topic, _read(reply))
            except RemotingError as error:
                reasons.append(str(error))
                self._move_on(address)
            except BodyError as error:
                reasons.append(f"{address} answered no route: {in_short(str(error))}")
            else:
                is_absent |= reply.code == ResponseCode.TOPIC_NOT_EXIST
                reasons.append(f"{address} answered {reply.code} {in_short(reply.remark)}")
        why = "; ".join(reasons) or "no name server is configured"
        raise RouteUnknown(topic, why, is_absent=is_absent)

    def _move_on(self, silent: str) -> None:
        """Ask the name server `silent` last from now on, unless another one is already first."""
        if self._namesrv[0] == silent:
            self._namesrv = [*self._namesrv[1:], silent]


def _read(reply: RemotingCommand) -> TopicRouteData:
    return TopicRouteData.from_request(reply.body, bytes_max=FRAME_BYTES_MAX, dialect_max=DIALECT_BYTES_MAX)
