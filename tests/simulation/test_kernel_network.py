"""The simulated network keeps the guarantees of TCP and no others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from simulation.kernel.node import Node
from simulation.kernel.transport import WINDOW_BYTES
from simulation.kernel.world import World

PORT = 9000
SERVER, CLIENT = "10.0.0.1", "10.0.0.2"


class Recorder(asyncio.Protocol):
    """Records its calls."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.chunks = 0
        self.events: list[str] = []
        self.error: Exception | None = None
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.chunks += 1

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.error = exc

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class BufferedRecorder(asyncio.BufferedProtocol):
    """Takes at most 7 bytes at a time."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._buffer = bytearray(7)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self._buffer[:nbytes]


class PausingRecorder(BufferedRecorder):
    """Pauses after each piece, and asks for no buffer until it resumes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def buffer_updated(self, nbytes: int) -> None:
        assert self._transport.is_reading()
        super().buffer_updated(nbytes)
        self._transport.pause_reading()
        asyncio.get_running_loop().call_later(0.001, self._transport.resume_reading)


class Link:
    """A world with a server and one connected client; `far` is the server's end."""

    def __init__(self, seed: int, make_far: Callable[[], Any] = Recorder) -> None:
        self.world = World(seed)
        self.server = self.world.node("server", SERVER)
        self.client = self.world.node("client", CLIENT)
        self.accepted: list[Any] = []
        self.make_far = make_far
        self.in_node(self.server, self._listen())
        _, self.near = self.in_node(self.client, self.connect())
        self.world.run_until(lambda: len(self.accepted) == 1, 1_000)
        self.far = self.accepted[0]

    def __enter__(self) -> Link:
        self.world.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self.world.__exit__(*raised)

    def in_node(self, node: Node, coroutine: Any) -> Any:
        task = node.spawn(coroutine)
        self.world.run_until(task.done, 200_000)
        return task.result()

    async def connect(self, host: str = SERVER, port: int = PORT) -> Any:
        return await asyncio.get_running_loop().create_connection(Recorder, host, port)

    def _accept(self) -> Any:
        self.accepted.append(self.make_far())
        return self.accepted[-1]

    async def _listen(self) -> Any:
        return await asyncio.get_running_loop().create_server(self._accept, SERVER, PORT)


@pytest.mark.parametrize("seed", range(8))
def test_bytes_arrive_completely_and_in_order_in_any_chunks(seed: int) -> None:
    sent = bytes(range(256)) * 40
    with Link(seed) as link:
        for start in range(0, len(sent), 97):
            link.near.transport.write(sent[start : start + 97])
        link.world.run_for_ms(50)
        assert link.far.data == sent
        assert link.far.chunks > 1
        link.near.transport.close()
        link.world.run_for_ms(10)
        assert link.far.events == ["made", "eof", "lost"] and link.far.error is None
        assert link.near.events == ["made", "lost"] and link.near.error is None


@pytest.mark.parametrize("reader", [BufferedRecorder, PausingRecorder])
def test_a_buffered_protocol_gets_the_same_bytes(reader: Callable[[], Any]) -> None:
    with Link(1, reader) as link:
        link.near.transport.writelines([b"one", memoryview(b"-two-"), bytearray(b"three" * 9)])
        link.world.run_for_ms(50)
        assert link.far.data == b"one-two-" + b"three" * 9


def test_a_paused_reader_stops_the_writer_and_bounds_the_bytes_in_flight() -> None:
    block = b"b" * 32_768
    with Link(2) as link:
        link.far.transport.pause_reading()
        written = 0
        while "pause" not in link.near.events:
            link.near.transport.write(block)
            written += len(block)
        link.world.run_for_ms(100)
        assert link.far.data == b""
        assert WINDOW_BYTES < written <= WINDOW_BYTES + 64 * 1024 + 2 * len(block)
        link.far.transport.resume_reading()
        link.world.run_for_ms(100)
        assert len(link.far.data) == written
        assert link.near.events == ["made", "pause", "resume"]
        assert link.near.transport.get_write_buffer_size() == 0


def test_a_close_flushes_bytes_that_the_pipe_had_no_room_for() -> None:
    with Link(3) as link:
        link.far.transport.pause_reading()
        link.near.transport.write(b"z" * (WINDOW_BYTES + 10_000))
        link.near.transport.close()
        link.world.run_for_ms(100)
        assert link.near.events == ["made"]
        link.far.transport.resume_reading()
        link.world.run_for_ms(100)
        assert len(link.far.data) == WINDOW_BYTES + 10_000
        assert link.far.events[-1] == "lost" and link.near.events[-1] == "lost"


def test_a_cut_holds_bytes_and_a_heal_delivers_them_in_order() -> None:
    with Link(4) as link:
        with link.world.partitioned(SERVER, CLIENT):
            for number in range(20):
                link.near.transport.write(b"%d," % number)
            link.world.run_for_ms(30_000)
            assert link.far.data == b""
        link.world.run_for_ms(2_000)
        assert link.far.data == b"".join(b"%d," % number for number in range(20))


def test_a_one_way_cut_passes_the_reverse_direction_until_the_window_is_full() -> None:
    with Link(5) as link:
        link.world.network.cut(CLIENT, SERVER, both=False)
        link.near.transport.write(b"held")
        link.far.transport.write(b"s" * (2 * WINDOW_BYTES))
        link.world.run_for_ms(10_000)
        assert link.far.data == b""
        assert len(link.near.data) == WINDOW_BYTES  # no acknowledgement comes back
        link.world.network.heal()
        link.world.run_for_ms(3_000)
        assert link.far.data == b"held" and len(link.near.data) == 2 * WINDOW_BYTES


def test_a_connect_to_a_closed_port_is_refused_and_across_a_cut_waits() -> None:
    with Link(6) as link:
        with pytest.raises(ConnectionRefusedError):
            link.in_node(link.client, link.connect(port=1))
        with link.world.partitioned(SERVER, CLIENT, both=False):
            connecting = link.client.spawn(link.connect())
            link.world.run_for_ms(2_500)
            assert not connecting.done()
        link.world.run_until(connecting.done, 2_000)
        link.world.network.cut(SERVER, CLIENT)
        with pytest.raises(TimeoutError):
            link.in_node(link.client, link.connect())


def test_a_cancelled_connect_leaves_nothing_open() -> None:
    async def impatient(link: Link) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.000_9):
                await link.connect()

    with Link(7) as link:
        link.world.network.delay(SERVER, CLIENT, 0.5, 0.6)
        link.in_node(link.client, impatient(link))
        link.world.run_for_ms(100)
        assert link.world.network.connections(SERVER, CLIENT) == 1


def test_a_reset_is_seen_by_both_ends() -> None:
    with Link(8) as link:
        link.world.network.reset(SERVER, CLIENT)
        link.world.run_for_ms(1)
        assert isinstance(link.near.error, ConnectionResetError)
        assert isinstance(link.far.error, ConnectionResetError)


def test_a_half_open_connection_is_detected_by_the_next_write() -> None:
    with Link(9) as link:
        link.world.network.half_open(SERVER, CLIENT)
        link.world.run_for_ms(60_000)
        assert link.far.events[-1] == "lost" and link.near.events == ["made"]
        link.near.transport.write(b"hello?")
        link.world.run_for_ms(10)
        assert isinstance(link.near.error, ConnectionResetError)


@pytest.mark.parametrize("writer", ["near", "far"])
def test_stalled_connections_of_a_port_continue_after_a_heal(writer: str) -> None:
    with Link(9) as link:
        network = link.world.network
        (one, other) = (link.near, link.far) if writer == "near" else (link.far, link.near)
        network.stall(CLIENT, SERVER, PORT + 1)
        one.transport.write(b"passes, ")
        link.world.run_for_ms(10)
        assert other.data == b"passes, "
        network.stall(CLIENT, SERVER, PORT)
        one.transport.write(b"stalls")
        link.world.run_for_ms(60_000)
        assert other.data == b"passes, " and not network.is_whole()
        network.heal()
        link.world.run_for_ms(1_010)
        assert other.data == b"passes, stalls" and network.is_whole()


def test_delayed_bytes_arrive_late_and_in_order() -> None:
    with Link(9) as link:
        link.world.network.hold_up(SERVER, PORT, 500)
        link.far.transport.write(b"late")
        link.world.run_for_ms(400)
        assert not link.near.data
        link.world.network.hold_up(SERVER, PORT, 0)
        link.far.transport.write(b" and behind it")
        link.world.run_for_ms(200)
        assert link.near.data == b"late and behind it"


def test_a_complete_heal_resets_only_misdirected_connections() -> None:
    """Cluster 3733224131919919: a slave asked the wrong broker for a second, long after all faults."""
    with Link(12) as link:
        network = link.world.network
        network.misdirect(CLIENT, "10.0.0.9", SERVER)
        _, astray = link.in_node(link.client, link.connect("10.0.0.9"))
        network.heal(SERVER)
        link.world.run_for_ms(10)
        assert astray.events == ["made"]
        network.heal()
        link.world.run_for_ms(10)
        assert isinstance(astray.error, ConnectionResetError)
        assert isinstance(link.accepted[1].error, ConnectionResetError)
        assert link.near.events == link.far.events == ["made"]


def test_an_abort_resets_the_peer() -> None:
    with Link(10) as link:
        link.near.transport.abort()
        link.world.run_for_ms(10)
        assert link.near.error is None and link.near.events[-1] == "lost"
        assert isinstance(link.far.error, ConnectionResetError)


def test_bytes_for_a_closed_end_are_answered_with_a_reset() -> None:
    with Link(11, HalfCloser) as link:
        link.near.transport.close()
        link.world.run_for_ms(10)
        link.far.transport.write(b"too late")
        link.world.run_for_ms(10)
        assert isinstance(link.far.error, ConnectionResetError)


class HalfCloser(Recorder):
    """Keeps its own direction open when the peer's ends."""

    def eof_received(self) -> bool:
        return True


def test_a_half_closed_connection_still_carries_the_other_direction() -> None:
    with Link(12, HalfCloser) as link:
        link.near.transport.write_eof()
        link.world.run_for_ms(10)
        link.far.transport.write(b"answer")
        link.far.transport.close()
        link.world.run_for_ms(10)
        assert link.near.data == b"answer" and link.near.events == ["made", "eof", "lost"]


def test_only_addresses_of_nodes_are_bound_and_port_0_takes_a_free_port() -> None:
    async def two_servers() -> list[tuple[str, int]]:
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(Recorder, host, 0) for host in ("0.0.0.0", SERVER)]
        with pytest.raises(OSError, match="address already in use"):
            await loop.create_server(Recorder, SERVER, servers[0].sockets[0].getsockname()[1])
        with pytest.raises(OSError, match=r"10\.9\.9\.9 is not an address"):
            await loop.create_server(Recorder, "10.9.9.9", 0)
        return [server.sockets[0].getsockname() for server in servers]

    with Link(13) as link:
        far, near = link.far.transport, link.near.transport
        assert near.get_extra_info("peername") == (SERVER, PORT)
        assert near.get_extra_info("sockname")[0] == CLIENT
        assert far.get_extra_info("peername") == near.get_extra_info("sockname")
        first, second = link.in_node(link.server, two_servers())
        assert first[1] != second[1] and (first[0], second[0]) == ("0.0.0.0", SERVER)


def test_loopback_means_the_nodes_own_host() -> None:
    async def listen() -> None:
        await asyncio.get_running_loop().create_server(Recorder, "127.0.0.1", 80)

    with Link(14) as link:
        link.in_node(link.server, listen())
        transport, _ = link.in_node(link.server, link.connect("127.0.0.1", 80))
        assert transport.get_extra_info("sockname")[0] == "127.0.0.1"
        with pytest.raises(ConnectionRefusedError):
            link.in_node(link.client, link.connect("127.0.0.1", 80))
        with pytest.raises(ConnectionRefusedError):
            link.in_node(link.client, link.connect(SERVER, 80))


def test_a_later_change_of_a_buffer_shows_in_bytes_that_wait_for_the_pipe() -> None:
    """As with uvloop, bytes that did not fit into the socket are read from the caller's buffer later."""
    with Link(15) as link:
        link.far.transport.pause_reading()
        mapping = bytearray(b"a" * (WINDOW_BYTES + 100))
        link.near.transport.write(memoryview(mapping))
        mapping[:] = b"b" * len(mapping)
        link.far.transport.resume_reading()
        link.world.run_for_ms(50)
        assert link.far.data == b"a" * WINDOW_BYTES + b"b" * 100


def test_a_closed_server_refuses_and_keeps_its_open_connections() -> None:
    async def listen_and_close() -> None:
        server = await asyncio.get_running_loop().create_server(Recorder, SERVER, 81)
        server.close()
        await server.wait_closed()
        assert not server.is_serving() and server.sockets == ()

    with Link(16) as link:
        link.in_node(link.server, listen_and_close())
        with pytest.raises(ConnectionRefusedError):
            link.in_node(link.client, link.connect(port=81))
        link.near.transport.write(b"on")
        link.world.run_for_ms(5)
        assert link.far.data == b"on"


@pytest.mark.parametrize("seed", range(25))
def test_no_byte_is_lost_duplicated_or_reordered_under_random_faults(seed: int) -> None:
    chance = random.Random(seed)
    with Link(seed) as link:
        network, ends = link.world.network, (link.near, link.far)
        sent = (bytearray(), bytearray())
        for step in range(80):
            which = chance.randrange(2)
            end, host, other = ends[which], (CLIENT, SERVER)[which], (SERVER, CLIENT)[which]
            match chance.randrange(8):
                case 0:
                    network.cut(host, other, both=chance.random() < 0.5)
                case 1 | 2:
                    network.heal(host, other)
                case 3:
                    end.transport.pause_reading()
                case 4:
                    end.transport.resume_reading()
                case 5:
                    (link.client, link.server)[which].pause(chance.randint(1, 300))
                case _:
                    data = step.to_bytes(2, "big") * chance.choice((1, 300, 30_000))
                    end.transport.writelines([data[:3], data[3:]])
                    sent[which].extend(data)
            link.world.run_for_ms(chance.choice((0, 1, 30, 400)))
            assert sent[0].startswith(link.far.data) and sent[1].startswith(link.near.data)
        network.heal()
        for end in ends:
            end.transport.resume_reading()
        link.world.run_for_ms(5_000)
        assert link.far.data == sent[0] and link.near.data == sent[1]


@pytest.mark.parametrize("seed", range(12))
def test_a_kill_at_any_moment_ends_every_connection_of_the_process(seed: int) -> None:
    chance = random.Random(seed)
    with Link(seed) as link:
        others = [link.client.spawn(link.connect()) for _ in range(5)]
        link.world.run_for_ms(chance.choice((0, 1, 2)))
        link.near.transport.write(b"x" * chance.choice((1, WINDOW_BYTES * 2)))
        link.server.kill()
        link.world.run_for_ms(2_000)
        link.near.transport.write(b"anyone?")
        link.world.run_for_ms(2_000)
        assert link.near.events[-1] == "lost"
        assert link.world.network.connections(SERVER, CLIENT) == 0
        assert link.world.network.connections(CLIENT, SERVER) == 0
        for other in others:
            assert other.done()
            assert other.exception() is None or isinstance(other.exception(), ConnectionError)
