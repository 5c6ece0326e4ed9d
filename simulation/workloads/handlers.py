"""Ordered readers that handle what they read, as in drills, while faults hit their brokers.

Invariant O3, for all confirmed messages: each message of a queue was handled by the reader that held the queue's lock, and
after the message before it. Messages are handled again only from a committed offset on (localcluster.order)."""

from __future__ import annotations

import asyncio
import random

from localcluster.inorder import GROUP, InOrderReaders
from localcluster.order import OrderVerdict
from mqclient.client import Client
from mqclient.errors import ClientError
from simulation.cluster.machines import Machines
from simulation.cluster.members import NAMESRV, TOPIC
from simulation.faults.fault import Fault
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.violation import Violation

NAME = "reader that handles in order"
TOPICS = (f"%RETRY%{GROUP}", f"%DLQ%{GROUP}", GROUP)
"""Topics and groups that exist because of the readers."""
AGAIN_MS = 200
LOCKS_MS_MAX = 90_000
"""A lease and a half, as in drills."""


class Handlers(Fault):
    """The readers. They are independent of the fault plan, have their own random generator, and run on a host without
    faults."""

    name = NAME

    def __init__(self, machines: Machines, node: Node) -> None:
        super().__init__(machines)
        self.node = node
        self.random = random.Random(f"{machines.world.seed}/handlers")
        self.begun = False
        self.sent = asyncio.Event()
        """Whether everything is sent."""
        self.verdict: OrderVerdict | None = None

    def next_step(self) -> None:
        if not self.begun:
            self.begun = True
            self.node.spawn(self.run())

    async def run(self) -> None:
        clock = SimulatedClock(self.node)
        chance = random.Random(self.random.getrandbits(32))
        keys = self.machines.credentials
        async with Client(NAMESRV, clock=clock, random=chance, credentials=keys) as client:
            readers = InOrderReaders(client, TOPIC, clock)
            while True:
                try:
                    await readers.start()
                    break
                except ClientError:
                    await asyncio.sleep(AGAIN_MS / 1000)
            self.count()
            await self.sent.wait()
            while self.verdict is None:
                try:
                    self.verdict = await readers.stop(LOCKS_MS_MAX)
                except ClientError:
                    await asyncio.sleep(AGAIN_MS / 1000)

    def stop(self) -> None:
        """Stop when the cluster is whole."""
        self.sent.set()
        self.world.run_until(lambda: self.verdict is not None, 2 * LOCKS_MS_MAX)

    def at_the_end(self) -> int:
        """Judge, and return how many messages were handled. Raises Violation."""
        if self.verdict is None or not self.verdict.handled:
            raise Violation("O3", f"no message was handled: {self.verdict}")
        if not self.verdict.holds:
            raise Violation(
                "O3", f"{len(self.verdict.faults)} faults of order, first: {self.verdict.faults[0]}"
            )
        return self.verdict.handled
