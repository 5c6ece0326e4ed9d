"""One client process' connections and routes, which its producers and consumers share.

Invariant: `close` ends every connection and task that any of them started.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from types import TracebackType
from typing import Self

from mqclient.consumer import PullConsumer
from mqclient.introductions import Introductions
from mqclient.producer import MESSAGE_BYTES_MAX, Producer
from mqclient.queuelocks import QueueLocks
from mqclient.requester import Awaited, Requester
from mqclient.routetable import RouteTable
from mqclient.transactions import Check, CheckRequests, TransactionProducer
from mqruntime.clock import Clock, SystemClock
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.router import Router


class Client:
    """`async with Client("127.0.0.1:9876") as client: client.producer("group")`."""

    def __init__(
        self,
        namesrv: str,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        asks_after_failures: bool = True,
    ) -> None:
        """`namesrv` is "host:port;..."; the machine's clock and a random generator of its own if none is given;
        `asks_after_failures` as of RouteTable. Raises ValueError for what is no such list."""
        self.clock = clock or SystemClock()
        self.random = random or Random()
        self._awaited = Awaited()
        self._checks = CheckRequests()
        router = Router()
        router.add(RequestCode.CHECK_TRANSACTION_STATE, self._checks.handle)
        self._awaited.add_to(router)
        self.remoting = RemotingClient(clock=self.clock, router=router)
        self._client_id = ""
        self.routes = RouteTable(namesrv, self.remoting, self.clock, asks_after_failures=asks_after_failures)

    def producer(self, group: str, *, message_bytes_max: int | None = MESSAGE_BYTES_MAX) -> Producer:
        """A producer that sends as `group`; it needs no start and no close of its own. A body above `message_bytes_max`, which
        is to be raised where brokers' `maxMessageSize` is, raises `MessageTooLong` and does not leave."""
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
        """A producer of messages in transactions, one of each group, to be used with `async with`; brokers ask `check` for what
        was not ended in `topics` and where it sends to. `client_id` is this client's alone; without one it gets some.

        Raises `GroupTaken` while the client has another one of `group`, until that is closed."""
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
        """What `group` reads in order; `client_id` is this client's alone."""
        return QueueLocks(group, client_id, routes=self.routes, client=self.remoting, clock=self.clock)

    def requester(self, group: str) -> Requester:
        """Sends requests as `group` and waits for their replies; answers those of others."""
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
        """Every call that is under way ends at once, with what is known of it."""
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
