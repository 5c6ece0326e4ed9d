"""When the cluster is whole, clients send as many small one-way requests as their connections accept, to one server after the
other. While such a flood lasts, the simulation charges CPU time for each request.

Invariant W1: a client on another connection gets its answer within a second, and the master keeps its epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from remoting.client import RemotingClient
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from simulation.cluster.machines import Machines
from simulation.cluster.members import BROKER_PORT, CONTROLLER_PORT, NAMESRV_PORT
from simulation.hostile import floods
from simulation.hostile.frames import whole
from simulation.kernel.cpu import charged
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.violation import Violation

NAME = "flood"
REQUEST_US = 100
"""A request costs some 10 us on a fast machine."""
CONNECTIONS = 12
REQUESTS = 7_000
"""Requests of each connection. All requests together are 8 s of work."""
UNSERVED = 999
LAST = whole(RemotingCommand(UNSERVED, 1))
ASKED_EACH_MS = 50
ANSWERED_MS_MAX = 1_000
CALL_MS = 60_000
ENDED_MS_MAX = 120_000


class Floods:
    """`whole` returns when the cluster is whole."""

    def __init__(self, machines: Machines, node: Node, whole: Callable[[], None]) -> None:
        self.machines = machines
        self.world = machines.world
        self.node = node
        self.whole = whole
        self.asked = self.slowest_ms = 0
        self.failed: RemotingError | None = None

    def run(self) -> None:
        """Raises Violation."""
        self.whole()
        master, leader = self.machines.master(), self.machines.leader()
        assert master is not None and leader is not None, "the cluster is whole"
        with charged(self.world.loop, REQUEST_US):
            for target, port in (
                (master, BROKER_PORT),
                (leader, CONTROLLER_PORT),
                (self.machines.namesrv, NAMESRV_PORT),
            ):
                self.flood(target, port)
        self.whole()

    def flood(self, target: Node, port: int) -> None:
        epoch, done = self.machines.check.newest[0], asyncio.Event()
        self.asked, self.slowest_ms, self.failed = 0, 0, None

        async def played() -> None:
            asking = asyncio.get_running_loop().create_task(self.ask(target.host, port))
            await asyncio.gather(*(self.pour(target.host, port) for _ in range(CONNECTIONS)))
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking
            done.set()

        began_ms = self.world.now_ms
        self.node.spawn(played())
        self.world.run_until(done.is_set, ENDED_MS_MAX)
        self.machines.done[NAME] += 1
        took_ms = self.world.now_ms - began_ms
        if self.failed is not None or self.slowest_ms > ANSWERED_MS_MAX:
            what = f"{took_ms} ms of a flood of {target.name}"
            raise Violation(
                "W1",
                f"an answer took {self.slowest_ms} ms in {what}, expected {ANSWERED_MS_MAX}: {self.failed}",
            )
        if 2_000 * took_ms < CONNECTIONS * REQUESTS * REQUEST_US or not self.asked:
            raise Violation(
                "W1",
                f"the flood of {target.name} took only {took_ms} ms, with {self.asked} requests of another client",
            )
        if self.machines.check.newest[0] != epoch:
            raise Violation(
                "W1",
                f"a flood of {target.name} ended master epoch {epoch}, now {self.machines.check.newest[0]}",
            )

    async def pour(self, host: str, port: int) -> None:
        """Send the requests, and wait until the server has answered the last one."""
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(floods.small(REQUESTS) + LAST)
            await reader.read(1)
        finally:
            writer.transport.abort()

    async def ask(self, host: str, port: int) -> None:
        """Send a request that no server serves, so every server answers it at once."""
        client = RemotingClient(clock=SimulatedClock(self.node), signer=self.machines.signer)
        try:
            while self.failed is None:
                asked_ms = self.world.now_ms
                try:
                    await client.call(f"{host}:{port}", RemotingCommand(UNSERVED, 1), CALL_MS)
                except RemotingError as error:
                    self.failed = error
                self.asked += 1
                self.slowest_ms = max(self.slowest_ms, self.world.now_ms - asked_ms)
                await asyncio.sleep(ASKED_EACH_MS / 1000)
        finally:
            await client.close()
