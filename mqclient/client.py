"""The connections and routes of one client process, shared by its producers and consumers.

Invariant: `close` ends every connection and task that a producer or consumer started."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from ssl import SSLContext
from types import TracebackType
from typing import Self

from mqclient.consumer import PullConsumer
from mqclient.introductions import Introductions
from mqclient.producer import MESSAGE_BYTES_MAX, Producer
from mqclient.queuelocks import QueueLocks
from mqclient.requester import Awaited, Requester
from mqclient.routetable import TopicRoutes
from mqclient.transactions import Check, CheckRequests, TransactionProducer
from mqruntime.clock import Clock, SystemClock
from mqruntime.network import PLAIN
from mqruntime.tlsconnector import TlsConnector
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.router import Router
from remoting.signing import Credentials, Signer


class Client:
    """`async with Client("127.0.0.1:9876") as client: client.producer("group")`."""

    def __init__(
        self,
        namesrv: str,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        asks_after_failures: bool = True,
        tls: SSLContext | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`namesrv` is "host:port;...". `tls` is the context of all connections, made by
        `ssl.create_default_context(cafile=...)`; without it connections are plain. Each request is signed with `credentials`,
        if there are some. By default the clock and the random generator are the machine's. `asks_after_failures` is explained
        in TopicRoutes. Raises ValueError if `namesrv` is no such list."""
        self.clock = clock or SystemClock()
        self.random = random or Random()
        self._awaited = Awaited()
        signer = None if credentials is None else Signer(credentials)
        self._checks = CheckRequests(signer)
        router = Router()
        router.add(RequestCode.CHECK_TRANSACTION_STATE, self._checks.handle)
        self._awaited.add_to(router)
        self.remoting = RemotingClient(
            clock=self.clock,
            network=PLAIN if tls is None else TlsConnector(tls),
            router=router,
            signer=signer,
        )
        self._client_id = ""
        self.routes = TopicRoutes(namesrv, self.remoting, self.clock, asks_after_failures=asks_after_failures)

    def producer(self, group: str, *, message_bytes_max: int | None = MESSAGE_BYTES_MAX) -> Producer:
        """A producer that sends as `group`. It needs no start and no close. A body above `message_bytes_max` is not sent and
        raises `MessageTooLong`; raise the limit if the brokers' `maxMessageSize` is higher."""
        return Producer(
            group,
            routes=self.routes,
            client=self.remoting,
            clock=self.clock,
            random=self.random,
            message_bytes_max=message_bytes_max,
        )

    def transactions(
        self, group: str, check: Check, *, client_id: str = "", topics: Iterable[str] = ()
    ) -> TransactionProducer:
        """A producer of transactions, to be used with `async with`. A client has at most one for each group. Brokers ask
        `check` about unfinished transactions in `topics` and in topics to which the producer sends. `client_id` must be unique
        to this client; by default it is generated.

        Raises: `GroupTaken` until the client's earlier producer of `group` is closed."""
        producer = self.producer(group)
        known_by = client_id or f"{self.random.getrandbits(64):016x}"
        return TransactionProducer(
            group,
            check,
            producer=producer,
            introductions=self._introductions(group, known_by),
            topics=topics,
            routes=self.routes,
            client=self.remoting,
            checks=self._checks,
        )

    def consumer(self, group: str) -> PullConsumer:
        """A consumer that reads as `group`."""
        return PullConsumer(group, routes=self.routes, client=self.remoting, clock=self.clock)

    def locks(self, group: str, client_id: str) -> QueueLocks:
        """Locks for reading queues in order as `group`. `client_id` must be unique to this client."""
        return QueueLocks(group, client_id, routes=self.routes, client=self.remoting, clock=self.clock)

    def requester(self, group: str) -> Requester:
        """A requester, which sends requests as `group` and waits for their replies. It also sends replies to requests."""
        if not self._client_id:
            self._client_id = f"python@{self.random.getrandbits(64):016x}"
        return Requester(
            self.producer(group),
            self._client_id,
            self._awaited,
            self._introductions(group, self._client_id),
            routes=self.routes,
            client=self.remoting,
            clock=self.clock,
        )

    def _introductions(self, group: str, client_id: str) -> Introductions:
        return Introductions(group, client_id, routes=self.routes, client=self.remoting, clock=self.clock)

    async def close(self) -> None:
        """End all calls in progress at once. Each call ends with what is known of its outcome."""
        self._awaited.close()
        for producer in self._checks.producers():
            await producer.close()
        await self.routes.close()
        await self.remoting.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
