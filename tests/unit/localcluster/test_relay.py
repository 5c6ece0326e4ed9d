"""The relay between processes, with real sockets: a cut is silent, held bytes are delivered later."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from localcluster import ports
from localcluster.layout import HOST, HOST_BEHIND_RELAY, Layout
from localcluster.partitions import CLIENT
from localcluster.peers import inode_of, owner_of
from localcluster.relay import Order, Relay, owner_in
from localcluster.waiting import NotYet, wait_for
from scripts.peers.waits import WAIT_MS

THERE, BACK = ("broker-0", "namesrv"), ("namesrv", "broker-0")
NOTHING = Order(frozenset(), reset=False)
MUCH = bytes(64 << 20)
"""More than socket buffers hold; they grow to 32 MiB on some machines."""


class Side:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def hear(self, count: int) -> bytes:
        async with asyncio.timeout(WAIT_MS / 1000):
            return await self.reader.readexactly(count)

    async def end(self) -> bytes:
        """All bytes until the other side closes its direction."""
        async with asyncio.timeout(WAIT_MS / 1000):
            return await self.reader.read()

    async def hears_nothing(self) -> None:
        """Asserts that neither bytes nor an end have arrived."""
        reading = asyncio.ensure_future(self.reader.read(1))
        done, _ = await asyncio.wait([reading], timeout=0)
        assert not done, done
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


class Net:
    """A relay in front of a name server that this test plays; `who` connects to it."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.who = "broker-0"
        self.relay = Relay(layout, lambda theirs, ours: self.who)
        self.accepted: asyncio.Queue[Side] = asyncio.Queue()
        self.sides: list[Side] = []

    async def connect(self) -> Side:
        side = Side(*await asyncio.open_connection(HOST, self.layout.base_port))
        self.sides.append(side)
        return side

    async def accept(self) -> Side:
        async with asyncio.timeout(WAIT_MS / 1000):
            return await self.accepted.get()

    async def pass_time(self) -> None:
        """Waits longer than an open link needs: another connection passes bytes through the relay."""
        self.who = "bystander"
        near = await self.connect()
        near.say(b"there")
        far = await self.accept()
        assert await far.hear(5) == b"there"
        far.say(b"back")
        assert await near.hear(4) == b"back"
        self.who = "broker-0"

    async def both_ways_dead(self) -> None:
        async def probe() -> None:
            if not {THERE, BACK} <= self.relay.cuts:
                raise NotYet(str(self.relay.cuts))

        await wait_for("both ways to be dead", probe, WAIT_MS)

    def arrived(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        side = Side(reader, writer)
        self.sides.append(side)
        self.accepted.put_nowait(side)


@asynccontextmanager
async def net(tmp_path: Path) -> AsyncIterator[Net]:
    lease = ports.lease_any(tmp_path, 6)
    made = Net(Layout(tmp_path, lease.ports.start, 1, 1, bind_host=HOST_BEHIND_RELAY))
    server = await asyncio.start_server(made.arrived, HOST_BEHIND_RELAY, made.layout.base_port)
    try:
        await made.relay.start()
        yield made
    finally:
        await made.relay.close()
        server.close()
        for side in made.sides:
            side.writer.transport.abort()
        lease.release()


Story = Callable[[Net, Side, Side], Awaitable[None]]


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Callable[[Story], None]]:
    """Runs a scenario with an open connection: the connecting side and the accepting one."""

    async def play(story: Story) -> None:
        async with net(tmp_path) as made:
            near = await made.connect()
            far = await made.accept()
            near.say(b"hello")
            assert await far.hear(5) == b"hello"
            await story(made, near, far)

    yield lambda story: asyncio.run(play(story))


def cut(*ways: tuple[str, str]) -> Order:
    return Order(frozenset(ways), reset=False)


def test_bytes_and_ends_pass_both_ways(played: Callable[[Story], None]) -> None:
    async def story(net: Net, near: Side, far: Side) -> None:
        near.say(MUCH)
        far.say(MUCH[1:])
        assert await far.hear(len(MUCH)) == MUCH
        assert await near.hear(len(MUCH) - 1) == MUCH[1:]
        near.writer.write_eof()
        assert await far.end() == b""
        far.say(b"still")
        far.writer.write_eof()
        assert await near.end() == b"still"

    played(story)


def test_a_cut_link_holds_bytes_and_ends_and_delivers_them_in_order_later(
    played: Callable[[Story], None],
) -> None:
    async def story(net: Net, near: Side, far: Side) -> None:
        net.relay.obey(cut(THERE, BACK))
        near.say(b"one")
        near.say(b"two")
        near.writer.close()
        far.say(b"back")
        await net.pass_time()
        await far.hears_nothing()
        net.relay.obey(NOTHING)
        assert await far.end() == b"onetwo"

    played(story)


def test_a_cut_does_not_affect_other_links(played: Callable[[Story], None]) -> None:
    async def story(net: Net, near: Side, far: Side) -> None:
        net.relay.obey(cut(("broker-0", "controller-0"), ("controller-0", "namesrv")))
        near.say(b"on")
        assert await far.hear(2) == b"on"

    played(story)


def test_a_one_way_cut_passes_the_other_direction_until_the_kernel_times_out(
    played: Callable[[Story], None],
) -> None:
    async def story(net: Net, near: Side, far: Side) -> None:
        net.relay.obey(cut(THERE))
        near.say(b"lost?")
        far.say(b"heard")
        assert await near.hear(5) == b"heard"
        await net.both_ways_dead()
        far.say(b"unheard")
        await net.pass_time()
        await far.hears_nothing()
        await near.hears_nothing()
        net.relay.obey(NOTHING)
        assert await near.hear(7) == b"unheard"
        assert await far.hear(5) == b"lost?"

    played(story)


def test_the_relay_buffers_little_of_bytes_sent_into_a_cut(played: Callable[[Story], None]) -> None:
    async def story(net: Net, near: Side, far: Side) -> None:
        net.relay.obey(cut(THERE, BACK))
        near.say(MUCH)
        await net.pass_time()
        await far.hears_nothing()
        assert near.writer.transport.get_write_buffer_size() > 0  # type: ignore[attr-defined]
        net.relay.obey(NOTHING)
        assert await far.hear(len(MUCH)) == MUCH

    played(story)


def test_a_cut_connection_healed_with_reset_is_reset(played: Callable[[Story], None]) -> None:
    async def story(net: Net, near: Side, far: Side) -> None:
        net.relay.obey(cut(THERE, BACK))
        near.say(b"held")
        await net.pass_time()
        net.relay.obey(Order(frozenset(), reset=True))
        for side in (near, far):
            with pytest.raises(ConnectionResetError):
                await side.end()

    played(story)


def test_a_reset_does_not_affect_uncut_links(played: Callable[[Story], None]) -> None:
    async def story(net: Net, near: Side, far: Side) -> None:
        net.relay.obey(cut(("broker-0", "controller-0")))
        net.relay.obey(Order(frozenset(), reset=True))
        near.say(b"on")
        assert await far.hear(2) == b"on"

    played(story)


def test_a_new_connection_across_a_cut_waits_until_it_heals(
    played: Callable[[Story], None],
) -> None:
    async def story(net: Net, near: Side, far: Side) -> None:
        net.relay.obey(cut(BACK))
        second = await net.connect()
        second.say(b"second")
        given_up = await net.connect()
        given_up.say(b"late")
        given_up.writer.transport.abort()
        await net.pass_time()
        await second.hears_nothing()
        assert net.accepted.empty()
        net.relay.obey(NOTHING)
        assert await (await net.accept()).hear(6) == b"second"
        third = await net.connect()
        third.say(b"third")
        assert await (await net.accept()).hear(5) == b"third"  # the aborted connection was never accepted

    played(story)


def test_a_process_that_does_not_run_is_seen_as_a_reset(tmp_path: Path) -> None:
    async def story() -> None:
        async with net(tmp_path) as made:
            side = Side(*await asyncio.open_connection(HOST, made.layout.base_port + 1))
            with pytest.raises(ConnectionResetError):
                await side.end()
            side.writer.close()

    asyncio.run(story())


def test_a_lost_end_is_reported_to_the_other_end_when_the_link_heals(
    played: Callable[[Story], None],
) -> None:
    async def story(net: Net, near: Side, far: Side) -> None:
        net.relay.obey(cut(THERE))
        near.writer.transport.abort()

        far.say(MUCH)  # the kernel of the other end refuses these bytes
        await net.both_ways_dead()
        await net.pass_time()
        await far.hears_nothing()
        net.relay.obey(NOTHING)
        with suppress(
            ConnectionResetError
        ):  # a slow relay sees the loss only now, and forwards the end first
            await far.end()

    played(story)


def test_an_order_is_read_back_from_its_line() -> None:
    order = Order(frozenset({THERE, ("client", "broker-0")}), reset=True)
    assert Order.decode(order.encode()) == order


def test_the_owner_of_a_socket_is_read_from_the_kernels_tables(tmp_path: Path) -> None:
    (tmp_path / "pids.json").write_text(f'{{"gone": {2**22 + 1}, "me": {os.getpid()}}}')
    with (
        socket.create_server((HOST, 0)) as listening,
        socket.create_connection(listening.getsockname()) as near,
    ):
        ends = near.getsockname(), near.getpeername()
        assert owner_in(tmp_path, *ends) == "me"
        (tmp_path / "pids.json").write_text("{}")
        assert owner_in(tmp_path, *ends) == CLIENT
    assert owner_in(tmp_path, ("127.0.0.1", 1), ("127.0.0.1", 2)) is None


def test_a_socket_that_its_process_closed_has_no_owner() -> None:
    with socket.create_server((HOST, 0)) as listening:
        with socket.create_connection(listening.getsockname()) as near:
            ends = near.getsockname(), near.getpeername()
            assert inode_of(*ends) == os.fstat(near.fileno()).st_ino
            far, _ = listening.accept()
            with far:
                assert inode_of(*reversed(ends)) == os.fstat(far.fileno()).st_ino
                near.close()
                assert inode_of(*ends) is None  # the kernel keeps it until the other side has closed, too
    assert owner_of(1, {"me": os.getpid()}) is None
