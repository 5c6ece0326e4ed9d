"""Timeouts, idle and stalled connections, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from mqruntime.runtime import Runtime
from remoting.client import RemotingClient
from remoting.command import RemotingCommand
from remoting.errors import CallTimeout, ConnectFailed, ConnectionLost
from remoting.frame import encode
from remoting.router import Router
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.unit.remoting.simulatedserver import ADDRESS, CLIENT, PORT, SERVER, SimulatedServer

ECHO, SILENT = 60_001, 60_002


def echo_server(runtime: Runtime) -> SimulatedServer:
    """It echoes one code and ignores another."""
    router = Router()
    router.add(ECHO, lambda peer, command: command.reply(body=command.body))
    router.add(SILENT, lambda peer, command: None)
    return SimulatedServer(runtime, router)


@pytest.fixture
def world() -> Iterator[World]:
    with World(7) as made:
        server = made.node("server", SERVER)
        server.start(echo_server)
        made.node("client", CLIENT)
        made.run_for_ms(10)
        yield made


def client_of(world: World) -> RemotingClient:
    return RemotingClient(clock=world.nodes["client"].runtime().clock)


def on_client(world: World, work: Coroutine[Any, Any, None], limit_ms: int = 600_000) -> None:
    task = world.nodes["client"].spawn(work)
    world.run_until(task.done, limit_ms)
    task.result()


def test_a_call_times_out_after_its_timeout(world: World) -> None:
    client = client_of(world)

    async def work() -> None:
        await client.call(ADDRESS, RemotingCommand.request(ECHO))
        begin = world.now_ms
        calls = [client.call(ADDRESS, RemotingCommand.request(SILENT), wait) for wait in (3000, 500, 1000)]

        async def ended_after(call: Coroutine[Any, Any, RemotingCommand]) -> int:
            with pytest.raises(CallTimeout):
                await call
            return world.now_ms - begin

        assert await asyncio.gather(*map(ended_after, calls)) == pytest.approx([3000, 500, 1000], abs=2)
        assert client.connected(ADDRESS)
        await client.close()

    on_client(world, work())


def test_connecting_to_a_silent_host_fails_in_time_for_all_callers(world: World) -> None:
    client = client_of(world)
    world.network.cut(SERVER, CLIENT)

    async def work() -> None:
        begin = world.now_ms

        async def fails_after(timeout_ms: int) -> int:
            with pytest.raises(ConnectFailed):
                await client.call(ADDRESS, RemotingCommand.request(ECHO), timeout_ms)
            return world.now_ms - begin

        waits = await asyncio.gather(fails_after(60_000), fails_after(500))
        assert waits == pytest.approx([3000, 500], abs=2)
        world.network.heal()
        assert (await client.call(ADDRESS, RemotingCommand.request(ECHO, body=b"x"))).body == b"x"
        await client.close()

    on_client(world, work())


def test_a_killed_server_ends_the_calls_that_wait_for_it(world: World) -> None:
    client = client_of(world)

    async def work() -> None:
        await client.call(ADDRESS, RemotingCommand.request(ECHO))
        waiting = asyncio.ensure_future(client.call(ADDRESS, RemotingCommand.request(SILENT), 60_000))
        await asyncio.sleep(0.1)
        world.nodes["server"].kill()
        with pytest.raises(ConnectionLost):
            await waiting
        await client.close()

    on_client(world, work(), limit_ms=5_000)


def test_an_idle_connection_is_closed_after_two_minutes_and_a_used_one_is_kept(world: World) -> None:
    client = client_of(world)
    lost: list[int] = []
    client.on_disconnect = lambda address: lost.append(world.now_ms)

    async def work() -> None:
        for _ in range(4):
            await client.call(ADDRESS, RemotingCommand.request(ECHO))
            await asyncio.sleep(100)
        assert lost == []
        await asyncio.sleep(30)
        assert len(lost) == 1
        await client.close()

    on_client(world, work())


class Dripper(asyncio.Protocol):
    """Sends a frame one byte a second and never ends it."""

    def __init__(self) -> None:
        self.frame = b"".join(bytes(part) for part in encode(RemotingCommand(ECHO, body=bytes(1000))))
        self.sent = 0
        self.lost_at_ms: int | None = None
        self.now_ms: Callable[[], int] = lambda: 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.drip()

    def drip(self) -> None:
        if self.lost_at_ms is None:
            assert isinstance(self.transport, asyncio.Transport)
            self.transport.write(self.frame[self.sent : self.sent + 1])
            self.sent += 1
            asyncio.get_running_loop().call_later(1, self.drip)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost_at_ms = self.now_ms()


def test_a_frame_that_arrives_too_slowly_closes_the_connection(world: World) -> None:
    dripper = Dripper()
    dripper.now_ms = lambda: world.now_ms

    async def work() -> None:
        await asyncio.get_running_loop().create_connection(lambda: dripper, SERVER, PORT)

    on_client(world, work())
    world.run_until(lambda: dripper.lost_at_ms is not None, limit_ms=130_000)


def test_a_stopped_server_leaves_nothing_behind(world: World) -> None:
    client = client_of(world)

    async def work() -> None:
        await client.call(ADDRESS, RemotingCommand.request(ECHO))
        await client.close()

    on_client(world, work())
    server: Node = world.nodes["server"]
    world.run(server.stop())
    assert server.left_behind == []


def test_processes_that_slept_close_no_connection_for_it(world: World) -> None:
    gone: list[str] = []
    client = RemotingClient(clock=world.nodes["client"].runtime().clock, on_disconnect=gone.append)

    async def ask() -> None:
        await client.call(ADDRESS, RemotingCommand.request(ECHO))

    on_client(world, ask())
    for node in world.nodes.values():
        node.pause(600_000)
    world.run_for_ms(600_100)
    on_client(world, ask())
    assert gone == [] and client.connected(ADDRESS)
    world.run_for_ms(200_000)
    assert gone == [ADDRESS], "idle while awake"
