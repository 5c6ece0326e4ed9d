"""HAService over real loopback sockets with logs in memory, on asyncio's loop and on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import pytest
import uvloop

from epochfile.file import EpochFile
from epochfile.history import EpochHistory
from ha.errors import EpochFenced, EpochHistoryMissing, HAAddressInUse
from ha.frames import Handshake, HandshakeReply, TransferHeader, encode_ack
from ha.service import HAService
from ha.settings import HASettings
from mqruntime.clock import SystemClock
from tests.unit.ha.memorylog import MemoryLog, record

HOST = "127.0.0.1"
SETTINGS = HASettings(
    transfer_batch_size=4096,
    sync_state_set_check_ms=5,
    wanted_repeat_ms=20,
    confirm_notice_ms=2,
    reconnect_ms_min=2,
    reconnect_ms_max=10,
    slave_disconnected_ms_max=100,
)

loops = pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


class Files:
    """Small files in memory; `gate` holds writes back, `error` fails them."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.gate: asyncio.Event | None = None
        self.waiting = 0
        self.error: OSError | None = None

    async def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    async def replace(self, name: str, data: bytes) -> None:
        if self.gate is not None:
            self.waiting += 1
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.files[name] = data

    async def remove(self, name: str) -> None:
        self.files.pop(name, None)

    async def names(self, under: str) -> list[str]:
        return sorted(self.files)


class Node:
    """One broker's replication; its controller accepts every set that is wanted while `controller_up`."""

    def __init__(self, broker_id: int, log: MemoryLog | None = None, settings: HASettings = SETTINGS) -> None:
        self.broker_id = broker_id
        self.log = log or MemoryLog()
        self.files = Files()
        self.settings = settings
        self.wanted: list[tuple[frozenset[int], str]] = []
        self.fatal: list[BaseException] = []
        self.confirms = 0
        self.set_epoch = 1
        self.controller_up = True
        self.ha = self._new_service(0)

    def _new_service(self, port: int) -> HAService:
        return HAService(
            self.log,
            EpochFile(self.files),
            settings=self.settings,
            clock=SystemClock(),
            host=HOST,
            port=port,
            on_sync_state_set_wanted=self._set_wanted,
            on_confirm=self._confirmed,
            on_fatal=self.fatal.append,
        )

    async def start(self) -> Node:
        await self.ha.start()
        self.ha.set_broker_id(self.broker_id)
        return self

    def _confirmed(self, offset: int) -> None:
        self.confirms += 1

    def _set_wanted(self, members: frozenset[int], reason: str) -> None:
        self.wanted.append((members, reason))
        if self.controller_up and self.ha.propose(members):
            self.set_epoch += 1
            assert self.ha.applied(members, self.set_epoch)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.ha.port}"

    async def lead(self, epoch: int) -> None:
        self.set_epoch += 1
        await self.ha.become_master(epoch, frozenset({self.broker_id}), self.set_epoch)

    async def follow(self, master: Node, epoch: int) -> None:
        await self.ha.become_slave(epoch, master.broker_id, master.address)


async def until(predicate: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not predicate():  # noqa: ASYNC110 - the sockets are real, so is the waiting
            await asyncio.sleep(0)


def run(loop_factory: LoopFactory, scenario: Callable[[list[Node]], Awaitable[None]], *ids: int) -> None:
    async def whole() -> None:
        nodes = [await Node(broker_id).start() for broker_id in ids]
        try:
            await scenario(nodes)
        finally:
            for node in nodes:
                await node.ha.stop()
        assert len(asyncio.all_tasks()) == 1, asyncio.all_tasks()  # V4

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(whole())


def fill(node: Node, name: str, count: int, size: int = 500) -> None:
    node.log.append(*(record(f"{name}-{n}", size) for n in range(count)))


@loops
def test_slaves_copy_the_log_enter_the_set_and_learn_the_confirm_offset(loop_factory: LoopFactory) -> None:
    async def scenario(nodes: list[Node]) -> None:
        a, b, c = nodes
        await a.lead(1)
        fill(a, "first", 100)
        await b.follow(a, 1)
        await c.follow(a, 1)
        await until(lambda: a.ha.in_sync_count() == 3)
        fill(a, "second", 100)
        end = a.log.max_offset()
        await until(lambda: a.ha.confirm_offset() == end)
        assert a.ha.acked_end(3) == end and a.ha.acked_end(4) == 0
        assert b.log.content() == c.log.content() == a.log.content()
        await until(lambda: b.log.confirm_offset() == c.log.confirm_offset() == end)
        assert b.ha.history == c.ha.history == a.ha.history == EpochHistory([(1, 0)])
        assert b.confirms > 0

    run(loop_factory, scenario, 1, 2, 3)


@loops
def test_a_deposed_master_gives_up_what_nobody_else_has(loop_factory: LoopFactory) -> None:
    async def scenario(nodes: list[Node]) -> None:
        a, b, c = nodes
        await a.lead(1)
        await b.follow(a, 1)
        await c.follow(a, 1)
        await until(lambda: a.ha.in_sync_count() == 3)
        fill(a, "shared", 60)
        shared = a.log.max_offset()
        await until(lambda: a.ha.confirm_offset() == shared)
        a.controller_up = False
        await b.lead(2)
        await c.follow(b, 2)
        fill(a, "nobody-has-this", 40)
        fill(b, "epoch-2", 50)
        assert a.ha.confirm_offset() == shared and a.ha.acked_end(2) == shared  # C7: no member, no ack
        await a.follow(b, 2)
        await until(lambda: b.ha.in_sync_count() == 3 and b.ha.confirm_offset() == b.log.max_offset())
        assert a.log.truncated == [(a.log.truncated[0][0], shared)]
        assert a.log.content() == b.log.content() == c.log.content()
        assert a.ha.history == b.ha.history == c.ha.history == EpochHistory([(1, 0), (2, shared)])
        # and back again, with an epoch that writes nothing in between
        a.controller_up = True
        await c.lead(3)
        await a.lead(4)
        fill(a, "epoch-4", 5)
        await b.follow(a, 4)
        await c.follow(a, 4)
        await until(lambda: a.ha.in_sync_count() == 3 and a.ha.confirm_offset() == a.log.max_offset())
        assert a.log.content() == b.log.content() == c.log.content()
        assert a.ha.history == b.ha.history == c.ha.history

    run(loop_factory, scenario, 1, 2, 3)


@loops
def test_a_re_elected_master_tells_its_live_links_the_epoch_r19_m5(loop_factory: LoopFactory) -> None:
    async def scenario(nodes: list[Node]) -> None:
        a, b = nodes
        await a.lead(1)
        await b.follow(a, 1)
        await until(lambda: a.ha.in_sync_count() == 2)
        fill(a, "one", 10)
        [link] = a.ha.status()["haConnectionInfo"]
        await a.ha.become_master(5, frozenset({1, 2}), 20)
        await b.follow(a, 5)
        await until(lambda: b.ha.history.last_epoch() == 5)
        fill(a, "two", 10)
        await until(lambda: a.ha.acked_end(2) == a.log.max_offset())
        assert a.ha.status()["haConnectionInfo"][0]["addr"] == link["addr"]
        assert a.ha.history == b.ha.history and len(a.ha.history) == 2

    run(loop_factory, scenario, 1, 2)


@loops
def test_what_is_appended_while_a_new_epoch_becomes_durable_is_sent_under_it(
    loop_factory: LoopFactory,
) -> None:
    async def scenario(nodes: list[Node]) -> None:
        a, b = nodes
        await a.lead(1)
        await b.follow(a, 1)
        await until(lambda: a.ha.in_sync_count() == 2)
        fill(a, "one", 10)
        begins = a.log.max_offset()
        await until(lambda: b.log.max_offset() == begins)
        a.files.gate = asyncio.Event()
        change = asyncio.create_task(a.ha.become_master(2, frozenset({1, 2}), 20))
        await until(lambda: a.files.waiting > 0)
        fill(a, "two", 10)
        for _ in range(50):
            await asyncio.sleep(0)
        assert b.log.max_offset() == begins
        a.files.gate.set()
        await change
        await until(lambda: b.log.max_offset() == a.log.max_offset())
        assert b.ha.history.entries[-1] == (2, begins)

    run(loop_factory, scenario, 1, 2)


@loops
def test_only_a_master_serves_r29(loop_factory: LoopFactory) -> None:
    async def scenario(nodes: list[Node]) -> None:
        a, b = nodes
        await a.lead(1)
        await b.follow(a, 1)
        reader, writer = await asyncio.open_connection(HOST, b.ha.port)
        writer.write(Handshake(9).encode())
        with pytest.raises(ConnectionError):
            if await reader.read(100) == b"":
                raise ConnectionResetError
        writer.close()
        assert b.ha.refused_connections == 1

    run(loop_factory, scenario, 1, 2)


@loops
@pytest.mark.parametrize(
    "garbage",
    [bytes(64), b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", Handshake(1).encode(), encode_ack(2**63 - 1)],
    ids=["zeros", "ones", "http", "own id", "ack"],
)
def test_garbage_ends_that_connection_and_moves_nothing_else(
    loop_factory: LoopFactory, garbage: bytes
) -> None:
    async def scenario(nodes: list[Node]) -> None:
        a, b = nodes
        await a.lead(1)
        await b.follow(a, 1)
        await until(lambda: a.ha.in_sync_count() == 2)
        reader, writer = await asyncio.open_connection(HOST, a.ha.port)
        writer.write(garbage)
        with pytest.raises(ConnectionError):
            if await reader.read(100) == b"":
                raise ConnectionResetError
        writer.close()
        fill(a, "after", 10)
        await until(lambda: a.ha.confirm_offset() == a.log.max_offset())
        assert a.ha.in_sync_count() == 2 and not a.fatal

    run(loop_factory, scenario, 1, 2)


async def greeted(
    port: int, handshake: Handshake, ack: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(handshake.encode())
    header = await reader.readexactly(20)
    await reader.readexactly(HandshakeReply.body_size(header))
    writer.write(encode_ack(ack))
    return reader, writer


@loops
def test_the_newest_connection_of_a_broker_replaces_the_former_r11_r24(loop_factory: LoopFactory) -> None:
    async def scenario(nodes: list[Node]) -> None:
        [a] = nodes
        await a.lead(1)
        fill(a, "x", 10)
        end = a.log.max_offset()
        old_reader, old = await greeted(a.ha.port, Handshake(2), end)
        await until(lambda: a.ha.in_sync_count() == 2)
        _new_reader, new = await greeted(a.ha.port, Handshake(2), end)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await old_reader.readexactly(10_000)
        await until(lambda: len(a.ha.status()["haConnectionInfo"]) == 1)
        assert a.ha.in_sync_count() == 2
        fill(a, "y", 1)
        new.write(encode_ack(a.log.max_offset()))
        await until(lambda: a.ha.confirm_offset() == a.log.max_offset())
        for writer in (old, new):
            writer.close()

    run(loop_factory, scenario, 1)


@loops
def test_a_dead_slave_leaves_the_set_and_an_async_learner_never_enters(loop_factory: LoopFactory) -> None:
    async def scenario(nodes: list[Node]) -> None:
        a, b = nodes
        await a.lead(1)
        fill(a, "x", 10)
        _reader, learner = await greeted(a.ha.port, Handshake(7, is_async_learner=True), a.log.max_offset())
        await b.follow(a, 1)
        await until(lambda: a.ha.in_sync_count() == 2)
        await b.ha.stop()
        fill(a, "y", 10)
        await until(lambda: a.ha.in_sync_count() == 1)
        assert "shrink 2: disconnected" in a.wanted[-1][1]
        assert a.ha.confirm_offset() == a.log.max_offset() and a.ha.acked_end(2) == 0  # F6
        assert all(7 not in members for members, _ in a.wanted)
        learner.close()

    run(loop_factory, scenario, 1, 2)


@loops
def test_a_java_sized_stream_is_sent_to_whoever_follows_the_protocol(loop_factory: LoopFactory) -> None:
    async def scenario(nodes: list[Node]) -> None:
        [a] = nodes
        fill(a, "x", 100)
        a.log.cold_below = 16384  # the first segment is read outside the mapping
        await a.lead(1)
        reader, writer = await greeted(a.ha.port, Handshake(2), 0)
        got = bytearray()
        while len(got) < a.log.max_offset():
            header = TransferHeader.decode(await reader.readexactly(36))
            assert header.offset == len(got) and header.body_size <= 4096
            got += await reader.readexactly(header.body_size)
        assert bytes(got) == a.log.content()
        assert (header.epoch, header.epoch_start_offset) in a.ha.history.entries
        writer.close()

    async def epochs_known(nodes: list[Node]) -> None:
        nodes[0].files.files["epochFileCheckpoint"] = b"1\n1725254278\n1-0\n"
        await nodes[0].ha._epochs.load()
        await scenario(nodes)

    run(loop_factory, epochs_known, 1)


@loops
def test_a_role_of_an_older_epoch_is_refused_m3(loop_factory: LoopFactory) -> None:
    async def scenario(nodes: list[Node]) -> None:
        a, b = nodes
        await a.lead(4)
        with pytest.raises(EpochFenced, match="epoch 3 is older than epoch 4"):
            await a.lead(3)
        with pytest.raises(EpochFenced):
            await a.follow(b, 3)
        await a.follow(b, 6)
        with pytest.raises(EpochFenced):
            await a.lead(5)
        assert a.ha.epoch == 6 and a.ha.history.last_epoch() == 4

    run(loop_factory, scenario, 1, 2)


@loops
def test_the_same_epoch_again_keeps_its_entry_r13(loop_factory: LoopFactory) -> None:
    async def scenario(nodes: list[Node]) -> None:
        [a] = nodes
        await a.lead(1)
        fill(a, "x", 10)
        await a.lead(1)
        await a.ha.stop()
        a.ha = a._new_service(0)  # the process starts again
        await a.start()
        await a.lead(1)
        assert a.ha.history.entries == ((1, 0),)

    run(loop_factory, scenario, 1)


@loops
def test_a_torn_tail_is_cut_before_a_broker_leads(loop_factory: LoopFactory) -> None:
    async def scenario(nodes: list[Node]) -> None:
        [a] = nodes
        await a.lead(1)
        fill(a, "x", 10)
        await a.ha.stop()
        a.log.write_view(5000, 40)[:4] = (500).to_bytes(4, "big")
        a.log.advance(5040)
        a.ha = a._new_service(0)
        await a.start()
        await a.lead(2)
        assert a.log.truncated == [(5040, 5000)]
        assert a.ha.history.entries == ((1, 0), (2, 5000))

    run(loop_factory, scenario, 1)


@loops
def test_a_log_without_epochs_is_neither_led_nor_followed_with_r15_e5(loop_factory: LoopFactory) -> None:
    async def scenario(nodes: list[Node]) -> None:
        a, b = nodes
        fill(a, "x", 10)
        with pytest.raises(EpochHistoryMissing, match="remove the whole store"):
            await a.lead(1)
        with pytest.raises(EpochHistoryMissing):
            await a.follow(b, 1)
        assert a.ha.status()["master"] is False

    run(loop_factory, scenario, 1, 2)


@loops
def test_a_change_of_role_waits_for_the_durable_step_under_way(loop_factory: LoopFactory) -> None:
    async def scenario(nodes: list[Node]) -> None:
        a, b = nodes
        await a.lead(1)
        fill(a, "x", 10)
        b.files.gate = asyncio.Event()
        await b.follow(a, 1)
        await until(lambda: b.files.waiting > 0)
        change = asyncio.create_task(b.lead(2))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not change.done()
        b.files.gate.set()
        await change
        assert b.log.max_offset() == 0
        assert b.ha.history.entries == ((2, 0),)

    run(loop_factory, scenario, 1, 2)


@loops
def test_an_epoch_file_that_cannot_be_written_is_fatal_l6(loop_factory: LoopFactory) -> None:
    async def scenario(nodes: list[Node]) -> None:
        a, b = nodes
        await a.lead(1)
        fill(a, "x", 10)
        b.files.error = OSError(5, "Input/output error")
        await b.follow(a, 1)
        await until(lambda: len(b.fatal) == 1)
        assert b.log.max_offset() == 0
        with pytest.raises(OSError, match="Input/output error"):
            await b.lead(2)

    run(loop_factory, scenario, 1, 2)


@loops
def test_a_full_disk_on_a_slave_ends_the_connection_and_it_goes_on_later(loop_factory: LoopFactory) -> None:
    async def scenario(nodes: list[Node]) -> None:
        a, b = nodes
        await a.lead(1)
        fill(a, "x", 10)
        b.log.full = True
        await b.follow(a, 1)
        await until(lambda: b.ha.history.last_epoch() == 1)
        for _ in range(50):
            await asyncio.sleep(0)
        assert b.log.max_offset() == 0 and not b.fatal
        b.log.full = False
        await until(lambda: b.log.content() == a.log.content())

    run(loop_factory, scenario, 1, 2)


@loops
def test_the_address_of_a_master_that_is_not_the_accepted_one_is_ignored_r4(
    loop_factory: LoopFactory,
) -> None:
    async def scenario(nodes: list[Node]) -> None:
        a, b, c = nodes
        await a.lead(1)
        await b.lead(2)
        fill(b, "new", 3)
        await c.ha.become_slave(2, 2, None)
        c.ha.set_master_ha_address(a.address, 1)
        assert "masterAddr" not in c.ha.status()["haClientRuntimeInfo"]
        c.ha.set_master_ha_address(b.address, 2)
        await until(lambda: c.log.content() == b.log.content())
        c.ha.set_master_ha_address(a.address, 2)  # named by mistake: its newest epoch is too old
        await until(lambda: c.ha.status()["haClientRuntimeInfo"]["masterAddr"] == a.address)
        for _ in range(200):
            await asyncio.sleep(0)
        assert c.log.content() == b.log.content() and c.log.truncated == []

    run(loop_factory, scenario, 1, 2, 3)


@loops
def test_a_connection_that_dies_at_once_leaves_nothing_behind_r28(loop_factory: LoopFactory) -> None:
    async def scenario(nodes: list[Node]) -> None:
        [a] = nodes
        await a.lead(1)
        for _ in range(20):
            _reader, writer = await asyncio.open_connection(HOST, a.ha.port)
            writer.write(Handshake(2).encode())
            writer.transport.abort()
        _reader, writer = await greeted(a.ha.port, Handshake(3), 0)
        await until(lambda: len(a.ha.status()["haConnectionInfo"]) == 1)
        writer.close()

    run(loop_factory, scenario, 1)


@loops
@pytest.mark.parametrize(
    "bad",
    [
        TransferHeader(10, 77, 1, 0, 0).encode() + bytes(10),
        bytes(36),
        TransferHeader(0, 0, 1, 0, 0).encode().replace(b"\0\0\0\0", b"\xff\xff\xff\xff", 1),
    ],
    ids=["offset", "state", "size"],
)
def test_a_slave_leaves_a_master_that_errs_and_tries_again_r36(loop_factory: LoopFactory, bad: bytes) -> None:
    async def scenario(nodes: list[Node]) -> None:
        [b] = nodes
        accepted = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal accepted
            accepted += 1
            await reader.readexactly(16)
            writer.write(HandshakeReply(1000, EpochHistory([(1, 0)])).encode())
            await reader.readexactly(12)
            body = record("x", 500)
            writer.write(TransferHeader(len(body), 0, 1, 0, 0).encode() + body if accepted == 1 else bad)
            if accepted == 1:
                writer.write(bad)
            with suppress(ConnectionError):
                await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        await b.ha.become_slave(1, 9, f"{HOST}:{port}")
        await until(lambda: accepted >= 3)
        assert b.log.content() == record("x", 500) and not b.fatal
        await b.lead(2)
        server.close()
        await server.wait_closed()
        await until(lambda: len(asyncio.all_tasks()) == 1)

    run(loop_factory, scenario, 2)


@loops
def test_more_connections_than_allowed_are_refused(loop_factory: LoopFactory) -> None:
    async def whole() -> None:
        node = await Node(1, settings=replace(SETTINGS, connections_max=2)).start()
        await node.lead(1)
        kept = [await greeted(node.ha.port, Handshake(broker_id), 0) for broker_id in (2, 3)]
        reader, writer = await asyncio.open_connection(HOST, node.ha.port)
        with pytest.raises(ConnectionError):
            if await reader.read(1) == b"":
                raise ConnectionResetError
        assert node.ha.refused_connections == 1 and len(node.ha.status()["haConnectionInfo"]) == 2
        for _, other in kept:
            other.close()
        writer.close()
        await node.ha.stop()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(whole())


@loops
def test_a_used_port_is_a_typed_error(loop_factory: LoopFactory) -> None:
    async def scenario(nodes: list[Node]) -> None:
        [a] = nodes
        with pytest.raises(HAAddressInUse, match="haListenPort"):
            await a._new_service(a.ha.port).start()

    run(loop_factory, scenario, 1)


@loops
def test_the_status_has_upstreams_fields(loop_factory: LoopFactory) -> None:
    async def scenario(nodes: list[Node]) -> None:
        a, b = nodes
        await a.lead(1)
        await b.follow(a, 1)
        fill(a, "x", 10)
        await until(lambda: a.ha.in_sync_count() == 2 and a.ha.confirm_offset() == a.log.max_offset())
        status = a.ha.status()
        assert sorted(status) == [
            "haClientRuntimeInfo",
            "haConnectionInfo",
            "inSyncSlaveNums",
            "master",
            "masterCommitLogMaxOffset",
        ]
        assert (status["master"], status["inSyncSlaveNums"], status["masterCommitLogMaxOffset"]) == (
            True,
            1,
            5000,
        )
        [link] = status["haConnectionInfo"]
        assert (link["diff"], link["inSync"], link["slaveAckOffset"], link["transferFromWhere"]) == (
            0,
            True,
            5000,
            5000,
        )
        client = b.ha.status()["haClientRuntimeInfo"]
        assert (client["masterAddr"], client["maxOffset"]) == (a.address, 5000)
        assert client["lastReadTimestamp"] > 0 and client["lastWriteTimestamp"] > 0

    run(loop_factory, scenario, 1, 2)
