"""A set of two brokers with three messages, and methods that send it requests."""

from __future__ import annotations

import asyncio
from typing import Any

from remoting import fastjson
from remoting.command import RemotingCommand
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster

BODIES = [b"one", b"two", b"three"]


class Served:
    """A set of two with three messages in queue 1 of topic orders."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = Cluster(world, 2)
        self.cluster.start_up()
        self.master = self.cluster.app(self.cluster.master)
        slave = self.cluster.slaves[0]
        self.slave = self.cluster.app(slave)
        self.cluster.run(self._fill())
        world.run_for_ms(100)

    async def _fill(self) -> None:
        async with self.cluster.client() as client:
            producer = client.producer("PG")
            self.results = []
            for body in BODIES:
                self.results.append(await producer.send("orders", body, queue_id=1, tags=body.decode()))
                await asyncio.sleep(0.002)  # so that each has a store time of its own

    def ask(
        self, code: int, header: Any = None, body: bytes | None = None, *, slave: bool = False
    ) -> RemotingCommand:
        address = (self.slave if slave else self.master).address
        reply: RemotingCommand = self.cluster.run(self.cluster.ask(address, code, header, body))
        return reply

    def ext(self, code: int, header: Any) -> dict[str, str]:
        reply = self.ask(code, header)
        assert reply.code == 0, reply.remark
        return reply.ext

    def json(self, code: int, header: Any = None, *, slave: bool = False) -> Any:
        reply = self.ask(code, header, slave=slave)
        assert reply.code == 0, reply.remark
        return fastjson.loads(bytes(reply.body or b""))
