"""Requests that wait for room on a connection whose other end reads slowly, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from mqruntime.runtime import Runtime
from remoting.client import RemotingClient
from remoting.command import RemotingCommand
from remoting.errors import CallTimeout, ConnectionLost, NotSent
from remoting.limits import Limits
from remoting.peer import Peer
from remoting.router import Router
from simulation.kernel.world import World
from tests.unit.remoting.simulatedserver import ADDRESS, CLIENT, SERVER, SimulatedServer

SIZE, ONE_WAY = 60_001, 60_002
FOUR_MIB = 4 << 20
OVERDUE_MS = 600_000


class CountingServer(SimulatedServer):
    """Answers with the size of the body and records the first byte of each body in order."""

    def __init__(self, runtime: Runtime) -> None:
        self.got: list[int] = []
        router = Router()
        router.add(SIZE, self._size)
        router.add(ONE_WAY, self._size)
        super().__init__(runtime, router)

    def _size(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        body = bytes(command.body or b"")
        self.got.append(body[0])
        return command.reply(body=b"%d" % len(body))


class Scene:
    """The server, a client, and a network between them that can be cut and healed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.apps: list[CountingServer] = []
        self.server = world.node("server", SERVER)
        self.server.start(self._app)
        world.node("client", CLIENT)
        world.run_for_ms(10)
        self.client = RemotingClient(clock=world.nodes["client"].runtime().clock)

    def _app(self, runtime: Runtime) -> CountingServer:
        self.apps.append(CountingServer(runtime))
        return self.apps[-1]

    @property
    def got(self) -> list[int]:
        return self.apps[0].got

    def call(
        self, mark: int, size: int = FOUR_MIB, timeout_ms: int = 60_000
    ) -> asyncio.Task[RemotingCommand]:
        command = RemotingCommand.request(SIZE, body=bytes([mark]) + bytes(size - 1))
        return asyncio.ensure_future(self.client.call(ADDRESS, command, timeout_ms))

    def one_way(self, mark: int) -> asyncio.Task[None]:
        return asyncio.ensure_future(
            self.client.one_way(ADDRESS, RemotingCommand.request(ONE_WAY, body=bytes([mark])))
        )

    async def cut(self) -> None:
        """Connects, and then cuts the network."""
        await self.call(0, size=1)
        self.got.clear()
        self.world.network.cut(SERVER, CLIENT)

    def play(self, story: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            await story(self)
            await self.client.close()

        task = self.world.nodes["client"].spawn(whole())
        self.world.run_until(task.done, OVERDUE_MS)
        task.result()


@pytest.fixture
def scene() -> Iterator[Scene]:
    with World(11) as world:
        yield Scene(world)


def test_calls_far_beyond_the_unsent_limit_are_sent_in_order_and_answered(scene: Scene) -> None:
    async def story(scene: Scene) -> None:
        replies = await asyncio.gather(*(scene.call(mark) for mark in range(30)))
        assert {bytes(reply.body or b"") for reply in replies} == {b"%d" % FOUR_MIB}
        assert scene.got == list(range(30))

    assert Limits().unsent_bytes_max < 30 * FOUR_MIB
    scene.play(story)


def test_small_calls_beyond_the_unsent_limit_are_all_answered(scene: Scene) -> None:
    count, size = 2_200, 32_768

    async def story(scene: Scene) -> None:
        await asyncio.gather(*(scene.call(number % 256, size) for number in range(count)))
        assert scene.got == [number % 256 for number in range(count)]

    assert count * size > Limits().unsent_bytes_max
    scene.play(story)


def test_a_call_that_gets_no_room_before_its_deadline_raises_not_sent(scene: Scene) -> None:
    async def story(scene: Scene) -> None:
        await scene.cut()
        begin = scene.world.now_ms
        sent, waits = scene.call(1, timeout_ms=3000), scene.call(2, timeout_ms=1000)
        with pytest.raises(NotSent, match=rf"{ADDRESS}: request {SIZE} was not sent: for 1000 ms"):
            await waits
        assert scene.world.now_ms - begin == pytest.approx(1000, abs=2)
        with pytest.raises(CallTimeout):
            await sent
        scene.world.network.heal()
        assert (await scene.call(3, size=7)).body == b"7"
        assert scene.got == [1, 3]

    scene.play(story)


def test_calls_and_one_way_requests_leave_in_the_order_they_came(scene: Scene) -> None:
    async def story(scene: Scene) -> None:
        await scene.cut()
        work = [scene.call(1), scene.call(2, size=1), scene.one_way(3), scene.call(4), scene.one_way(5)]
        await asyncio.sleep(1)
        assert not any(task.done() for task in work)
        scene.world.network.heal()
        await asyncio.gather(*work)
        await scene.call(6, size=1)  # behind the last one-way request
        assert scene.got == [1, 2, 3, 4, 5, 6]

    scene.play(story)


def test_a_cancelled_call_leaves_its_place_and_is_never_sent(scene: Scene) -> None:
    async def story(scene: Scene) -> None:
        await scene.cut()
        first, second, third = scene.call(1), scene.call(2), scene.call(3)
        await asyncio.sleep(1)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        scene.world.network.heal()
        await asyncio.gather(first, third)
        assert scene.got == [1, 3]

    scene.play(story)


def test_a_one_way_request_waits_for_room_no_longer_than_for_a_connection(scene: Scene) -> None:
    async def story(scene: Scene) -> None:
        await scene.cut()
        big, begin = scene.call(1), scene.world.now_ms
        with pytest.raises(NotSent):
            await scene.one_way(2)
        assert scene.world.now_ms - begin == pytest.approx(3000, abs=2)
        scene.world.network.heal()
        await big
        assert scene.got == [1]

    scene.play(story)


def test_when_a_connection_is_lost_only_sent_calls_have_an_unknown_outcome(scene: Scene) -> None:
    async def story(scene: Scene) -> None:
        await scene.cut()
        sent, waits, one_way = scene.call(1), scene.call(2), scene.one_way(3)
        await asyncio.sleep(1)
        scene.client.disconnect(ADDRESS)  # closes once what was sent has left
        scene.server.kill()
        scene.world.network.heal()
        with pytest.raises(ConnectionLost):
            await sent
        for task in (waits, one_way):
            with pytest.raises(NotSent):
                await task
        assert scene.got == []

    scene.play(story)


def test_a_connection_closed_by_this_side_reports_the_reason(scene: Scene) -> None:
    async def story(scene: Scene) -> None:
        await scene.cut()
        with pytest.raises(ConnectionLost, match="cut by this end: idle"):
            await scene.call(1, timeout_ms=OVERDUE_MS)

    scene.play(story)
