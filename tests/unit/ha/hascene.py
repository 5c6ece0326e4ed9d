"""Replication of brokers over real loopback sockets with logs in memory, on asyncio's loop and on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

import pytest
import uvloop

from epochfile.file import EpochFile
from ha.errors import ReplicasUnread
from ha.frames import Handshake, HandshakeReply, encode_ack
from ha.master.admittance import RegisteredReplica, Table
from ha.service.haservice import HAService
from ha.settings import HASettings
from ha.syncstateset import Alter, AlterNotSent, Applied
from mqruntime.clock import SystemClock
from tests.support.doubles import MemoryFiles
from tests.unit.ha.memorylog import MemoryLog, record

HOST = "127.0.0.1"
SETTINGS = HASettings(
    transfer_batch_size=4096,
    sync_state_set_check_ms=5,
    alter_retry_ms=20,
    confirm_notice_ms=2,
    reconnect_ms_min=2,
    reconnect_ms_max=10,
    full_log_wait_ms=10,
    slave_disconnected_ms_max=100,
)

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Files(MemoryFiles):
    """`gate` holds writes back and `error` fails them; `kept` has the first `keeps` of them, as a disk has
    after its process was killed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate: asyncio.Event | None = None
        self.waiting = 0
        self.error: OSError | None = None
        self.kept: dict[str, bytes] = {}
        self.keeps = 0

    async def replace(self, name: str, data: bytes | bytearray) -> None:
        if self.gate is not None:
            self.waiting += 1
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        await super().replace(name, data)
        if self.keeps:
            self.keeps -= 1
            self.kept[name] = data

    async def overwrite(self, name: str, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        await super().overwrite(name, data)


class Node:
    """One broker's replication; its controller accepts every alter while `controller_up`."""

    def __init__(self, broker_id: int, settings: HASettings = SETTINGS) -> None:
        self.broker_id = broker_id
        self.log = MemoryLog()
        self.files = Files()
        self.settings = settings
        self.wanted: list[tuple[frozenset[int], str]] = []
        self.fatal: list[BaseException] = []
        self.confirms = 0
        self.set_epoch = 1
        self.members_min = 1
        self.catch_up_limit: int | None = None
        self.controller_up = True
        self.replicas: Table = {known: RegisteredReplica(frozenset({HOST})) for known in range(1, 10)}
        self.replicas_read = 0
        self.ha = self.new_service(0)

    @property
    def port(self) -> int:
        return int(self.ha.address.rpartition(":")[2])

    def new_service(self, port: int) -> HAService:
        return HAService(
            self.log,
            EpochFile(self.files),
            settings=self.settings,
            clock=SystemClock(),
            host=HOST,
            port=port,
            advertised_host=HOST,
            members_min=lambda: self.members_min,
            truncation_allowed=lambda: None,
            catch_up_limit=lambda: self.catch_up_limit,
            on_fatal=self.fatal.append,
        )

    async def start(self) -> Node:
        self.ha.on_confirm(self._confirmed)
        self.ha.speaks_through(self, self)
        await self.ha.start()
        return self

    async def start_again(self) -> None:
        """Start another process on the log and the files of the stopped one."""
        self.ha = self.new_service(0)
        await self.start()

    def _confirmed(self) -> None:
        self.confirms += 1

    def alter_sync_state_set(self, alter: Alter) -> None:
        self.wanted.append((alter.members, alter.reason))
        asyncio.get_running_loop().call_soon(self._decide, alter)

    def _decide(self, alter: Alter) -> None:
        mastership = self.ha.mastership
        if mastership is None:
            return
        if not self.controller_up:
            mastership.alter_ended(alter, AlterNotSent())
            return
        self.set_epoch = alter.set_epoch + 1
        mastership.alter_ended(alter, Applied(alter.members, self.set_epoch))

    def read_sync_state_set(self) -> None:
        """Nothing to do: the set is already known."""

    async def read(self) -> Table:
        self.replicas_read += 1
        if not self.controller_up:
            raise ReplicasUnread("it is down")
        return self.replicas

    @property
    def address(self) -> str:
        return self.ha.address

    async def lead(self, epoch: int) -> None:
        self.set_epoch += 1
        await self.ha.become_master(epoch, self.broker_id, frozenset({self.broker_id}), self.set_epoch)

    async def follow(self, master: Node, epoch: int) -> None:
        await self.ha.become_slave(epoch, self.broker_id, master.broker_id, master.address)


async def until(predicate: Callable[[], bool]) -> None:
    while not predicate():  # noqa: ASYNC110 - the sockets are real, so is the waiting
        await asyncio.sleep(0)


Scenario = Callable[..., Awaitable[None]]


def played_by(*ids: int, settings: HASettings = SETTINGS) -> Callable[[Scenario], Callable[..., None]]:
    """Make a test of a scenario on each loop; its first parameters are started nodes with these ids."""

    def made(scenario: Scenario) -> Callable[..., None]:
        async def whole(given: dict[str, Any]) -> None:
            nodes = [await Node(broker_id, settings).start() for broker_id in ids]
            try:
                await scenario(*nodes, **given)
            finally:
                for node in nodes:
                    await node.ha.stop()
                await turns(5)  # a connection that was accepted just before is opened and closed
            assert len(asyncio.all_tasks()) == 1, asyncio.all_tasks()  # V4

        @wraps(scenario)
        def test(loop: str, **given: Any) -> None:
            with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
                runner.run(whole(given))

        filled_in = list(signature(scenario).parameters.values())[len(ids) :]
        loop = Parameter("loop", Parameter.POSITIONAL_OR_KEYWORD)
        test.__signature__ = Signature([loop, *filled_in])  # type: ignore[attr-defined]  # pytest reads it
        on_each_loop: Callable[[Callable[..., None]], Callable[..., None]] = pytest.mark.parametrize(
            "loop", LOOPS
        )
        return on_each_loop(test)

    return made


async def in_step(master: Node, *slaves: Node) -> None:
    """Let `master` lead epoch 1 and wait until all slaves are in its SyncStateSet."""
    await master.lead(1)
    for slave in slaves:
        await slave.follow(master, 1)
    await until(lambda: master.ha.in_sync_count() == 1 + len(slaves))


async def turns(count: int) -> None:
    """Run `count` turns of the loop in which nothing should happen."""
    for _ in range(count):
        await asyncio.sleep(0)


async def hung_up(reader: asyncio.StreamReader) -> bool:
    """Whether the other end closes the connection without sending a byte."""
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True


def fill(node: Node, name: str, count: int, size: int = 500) -> None:
    node.log.append(*(record(f"{name}-{n}", size) for n in range(count)))


async def greeted(
    port: int, handshake: Handshake, ack: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A slave's connection that has completed the handshake and acknowledged `ack`."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(handshake.encode())
    header = await reader.readexactly(20)
    await reader.readexactly(HandshakeReply.body_size(header))
    writer.write(encode_ack(ack))
    return reader, writer
