"""The connections and routes of one client process, shared by its producers and consumers.

Invariant: `close` ends every connection and task that a producer or consumer started."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from random import Random
from ssl import SSLContext
from types import TracebackType
from typing import Literal, Self

from mqclient.admin import Admin
from mqclient.consumer import PullConsumer
from mqclient.groupconsumer import ConsumerOptions, GroupConsumer
from mqclient.introductions import Introductions
from mqclient.memberrequests import MemberRequests
from mqclient.producer import MESSAGE_BYTES_MAX, Producer
from mqclient.queuelocks import QueueLocks
from mqclient.queuepuller import StartPosition
from mqclient.requester import Awaited, Requester
from mqclient.routetable import TopicRoutes
from mqclient.selectors import Topics, selectors_of
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
        namesrv: str | Sequence[str],
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        asks_after_failures: bool = True,
        tls: SSLContext | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`namesrv` is "host:port;..." or a list of "host:port". `tls` is the context of all connections, made by
        `ssl.create_default_context(cafile=...)`; without it connections are plain. Each request is signed with `credentials`,
        if there are some. By default the clock and the random generator are the machine's. `asks_after_failures` is explained
        in TopicRoutes. Raises ValueError or TypeError if `namesrv` is no such list."""
        addresses = _addresses(namesrv)
        self.clock = clock or SystemClock()
        self.random = random or Random()
        self._awaited = Awaited()
        signer = None if credentials is None else Signer(credentials)
        self._checks = CheckRequests(signer)
        router = Router()
        router.add(RequestCode.CHECK_TRANSACTION_STATE, self._checks.handle)
        self._awaited.add_to(router)
        self._members = MemberRequests(self.clock)
        self._members.add_to(router)
        self.remoting = RemotingClient(
            clock=self.clock,
            network=PLAIN if tls is None else TlsConnector(tls),
            router=router,
            signer=signer,
            on_disconnect=self._members.disconnected,
        )
        self._client_id = ""
        self.routes = TopicRoutes(
            addresses, self.remoting, self.clock, asks_after_failures=asks_after_failures
        )

    def producer(
        self,
        group: str,
        *,
        message_bytes_max: int | None = MESSAGE_BYTES_MAX,
        compress_from: int | None = None,
    ) -> Producer:
        """A producer that sends as `group`. It needs no start and no close. A body above `message_bytes_max` is not sent and
        raises `MessageTooLong`; raise the limit if the brokers' `maxMessageSize` is higher. Bodies of `compress_from` bytes or
        more are compressed with ZLIB (Java's producers do so from 4,096 on), which all consumers open by themselves; those of
        batches are not."""
        return Producer(
            group,
            routes=self.routes,
            client=self.remoting,
            clock=self.clock,
            random=self.random,
            message_bytes_max=message_bytes_max,
            compress_from=compress_from,
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

    def admin(self) -> Admin:
        """Makes, describes and deletes topics."""
        return Admin(self.consumer("admin"), routes=self.routes, client=self.remoting, clock=self.clock)

    def locks(self, group: str, client_id: str) -> QueueLocks:
        """Locks for reading queues in order as `group`. `client_id` must be unique to this client."""
        return QueueLocks(group, client_id, routes=self.routes, client=self.remoting, clock=self.clock)

    def requester(self, group: str) -> Requester:
        """A requester, which sends requests as `group` and waits for their replies. It also sends replies to requests."""
        client_id = self._own_id()
        return Requester(
            self.producer(group),
            client_id,
            self._awaited,
            self._introductions(group, client_id),
            routes=self.routes,
            client=self.remoting,
            clock=self.clock,
        )

    def subscribe(
        self,
        topics: Topics,
        *,
        group: str,
        ordered: bool = False,
        broadcast: bool = False,
        start: Literal["first", "last"] | datetime = "last",
        strategy: Literal["AVG", "AVG_BY_CIRCLE"] = "AVG",
        max_messages: int = 1_000,
        max_bytes: int = 64 << 20,
        max_reconsume_times: int | None = None,
        grace_s: float = 10.0,
    ) -> GroupConsumer:
        """Join `group` as a consumer, within `async with`, and share its queues with the other members, which may be written in
        other languages. All members must subscribe to the same topics, with the same selectors and `strategy`.

        - `topics`: "orders", ["orders", "clicks"], or {"orders": "A||B", "clicks": sql("price > 5")}.
        - `ordered`: the messages of a queue are taken one after the other, by one member at a time.
        - `broadcast`: this member gets the messages of all queues; positions are not stored, failed messages are dropped.
        - `start`: where a queue begins for which the group has committed nothing. As with Java's consumers, a broker lets a new
          group begin with the first message while that one is still in its memory.
        - `max_messages` and `max_bytes` limit what is read ahead.
        - `max_reconsume_times`: after so many more attempts a message is a dead letter; by default 16 (`retryMaxTimes` of the
          group), with `ordered` never.
        - `grace_s`: how long closing waits for messages in the application's hands.

        Raises GroupTaken, ValueError, TypeError."""
        if not group:
            raise ValueError("a group has a name")
        options = ConsumerOptions(
            ordered=ordered,
            broadcast=broadcast,
            start=StartPosition(start),
            strategy=strategy,
            max_messages=max_messages,
            max_bytes=max_bytes,
            max_reconsume_times=max_reconsume_times,
            grace_s=grace_s,
        )
        self._members.check_free(group)
        client_id = self._own_id()
        return GroupConsumer(
            group,
            selectors_of(topics),
            options=options,
            client_id=client_id,
            consumer=self.consumer(group),
            locks=self.locks(group, client_id),
            routes=self.routes,
            client=self.remoting,
            clock=self.clock,
            opened=self._members.add,
            closed=self._members.remove,
        )

    def _own_id(self) -> str:
        """The id by which brokers know this client."""
        if not self._client_id:
            self._client_id = f"python@{self.random.getrandbits(64):016x}"
        return self._client_id

    def _introductions(self, group: str, client_id: str) -> Introductions:
        return Introductions(group, client_id, routes=self.routes, client=self.remoting, clock=self.clock)

    async def close(self) -> None:
        """End all calls in progress at once. Each call ends with what is known of its outcome."""
        self._awaited.close()
        for subscription in self._members.all():
            await subscription.close()
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


def _addresses(namesrv: str | Sequence[str]) -> str:
    """The addresses, separated by ";". Raises TypeError."""
    if isinstance(namesrv, str):
        return namesrv
    if not isinstance(namesrv, Sequence) or not all(isinstance(each, str) for each in namesrv):
        raise TypeError(f'name servers are "host:port;..." or a list of such addresses, not {namesrv!r}')
    return ";".join(namesrv)
