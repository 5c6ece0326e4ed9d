"""The CPU time of requests in a world that charges for it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest

from namesrv.server import NamesrvApp
from namesrv.settings import NamesrvSettings
from remoting.client import RemotingClient
from remoting.command import RemotingCommand
from simulation.kernel.cpu import charged
from simulation.kernel.node import SimulatedClock
from simulation.kernel.world import World

REQUESTS = 50
COST_US = 2_000


@pytest.mark.parametrize("is_charged", [False, True])
def test_requests_cost_cpu_time_of_their_server_only_if_charged(is_charged: bool) -> None:
    with World(3) as world:
        server, asker = world.node("namesrv", "10.0.0.1"), world.node("asker", "10.0.0.2")
        settings = NamesrvSettings(bindAddress=server.host)
        server.start(lambda runtime: NamesrvApp(settings, runtime))
        world.run_for_ms(100)

        async def ask() -> int:
            client = RemotingClient(clock=SimulatedClock(asker))
            began_ms = world.now_ms
            for _ in range(REQUESTS):
                await client.call(f"{server.host}:9876", RemotingCommand(999, 1))
            await client.close()
            return world.now_ms - began_ms

        charging: AbstractContextManager[None] = charged(world.loop, COST_US) if is_charged else nullcontext()
        with charging:
            asking = asker.spawn(ask())
            world.run_until(asking.done, 10_000)
        assert server.process is not None and asker.process is not None
        assert server.process.worked_us == (REQUESTS * COST_US if is_charged else 0)
        assert asker.process.worked_us == 0
        took_ms = asking.result()
        cost_ms = REQUESTS * COST_US // 1000
        assert took_ms >= cost_ms - COST_US // 1000 if is_charged else took_ms < cost_ms
