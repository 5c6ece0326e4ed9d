"""A process in the simulator that is a member of a consumer group, and notes what it gets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from mqclient.client import Client
from mqclient.groupconsumer import GroupConsumer
from mqclient.received import ReceivedMessage
from simulation.kernel.node import SimulatedClock
from simulation.kernel.world import World
from tests.cluster.brokerset import NAMESRV


class MemberNode:
    """A member of `group` on a host of its own. `got` has each message that its handler saw: (time in ms, number, queue id)."""

    def __init__(
        self, world: World, number: int, group: str = "billing", topics: Any = "orders", **how: Any
    ) -> None:
        self.world = world
        self.node = world.node(f"member-{number}", f"10.0.4.{10 + number}")
        self.got: list[tuple[int, int, int]] = []
        self.messages: list[ReceivedMessage] = []
        self.before: Callable[[ReceivedMessage], Awaitable[None]] | None = None
        """Called with each message before it is handled."""
        self.client = Client(NAMESRV, clock=SimulatedClock(self.node), random=random.Random(number))
        self.concurrency = how.pop("concurrency", 4)
        self._group, self._topics, self._how = group, topics, how
        self.subscription: GroupConsumer | None = None
        self._leaves = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def start(self) -> MemberNode:
        self.task = self.node.spawn(self._consume())
        return self

    def leave(self) -> None:
        assert self.subscription is not None
        self.subscription.stop()

    @property
    def numbers(self) -> list[int]:
        return [number for _, number, _ in self.got]

    @property
    def queues(self) -> list[int]:
        """The numbers of the queues of `orders` that it reads."""
        assigned = self.subscription.assigned if self.subscription is not None else ()
        return sorted(queue.queue_id for queue in assigned if queue.topic == "orders")

    async def _consume(self) -> None:
        async with self.client:
            async with self.client.subscribe(self._topics, group=self._group, **self._how) as subscription:
                self.subscription = subscription
                await subscription.run(self._handle, concurrency=self.concurrency)

    async def _handle(self, message: ReceivedMessage) -> None:
        if self.before is not None:
            await self.before(message)
        self.got.append((self.world.now_ms, int(message.body), message.queue.queue_id))
        self.messages.append(message)
