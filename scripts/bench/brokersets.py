"""Broker sets as controllers see them. Requests use one connection, and each broker sends heartbeats over its own connection
to each controller.

Invariant: heartbeats announce a long timeout, so a broker counts as dead only when its connection ends. The brokers have
different addresses, and one listener accepts the requests to all of them."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from mqruntime.clock import SystemClock
from remoting.bodies.replicas import BrokerReplicasInfo, SyncStateSetBody
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ONEWAY_BIT, RemotingCommand
from remoting.errors import RemotingError
from remoting.frame import encode
from remoting.header import Header
from remoting.headers.controller import (
    AlterSyncStateSetHeader,
    ApplyBrokerIdHeader,
    BrokerHeartbeatHeader,
    ElectMasterHeader,
    GetMetadataResponseHeader,
    GetReplicaInfoHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerHeader,
)

CLUSTER = "bench"
REPLICAS = (1, 2, 3)
LIFETIME_MS = 600_000
LOG_BYTES = 1 << 30
AT_ONCE = 64
TRIES = 2000
TRY_AGAIN_S = 0.05
CALL_MS = 30_000

Broker = tuple[str, int]
"""(name of the broker's set, broker id)."""


class ControllerRefused(Exception):
    """A controller answered with another code than success."""


class BrokerSets:
    """`count` sets of three brokers, which the controllers know after `register` has returned. Sets that were registered
    before come back with their former `port`."""

    def __init__(self, controllers: Iterable[str], leader: str, count: int, port: int = 0) -> None:
        self.controllers = list(controllers)
        self.leader = leader
        self.names = [f"set-{number:04}" for number in range(count)]
        self.client = RemotingClient(clock=SystemClock())
        self.lost: dict[str, int] = {}
        """For each set: the master that was lost last."""
        self._sockets: dict[tuple[str, Broker], socket.socket] = {}
        self._listener = DiscardingListener(port)

    @property
    def port(self) -> int:
        """The port of all brokers."""
        return self._listener.port

    async def close(self) -> None:
        for connection in self._sockets.values():
            connection.close()
        await self.client.close()
        self._listener.close()

    def address(self, broker: Broker, *, moved: bool = False) -> str:
        number = int(broker[0].rpartition("-")[2])
        return f"127.{broker[1] + (100 if moved else 0)}.{number // 250}.{number % 250 + 1}:{self.port}"

    async def call(
        self, code: RequestCode, header: Header | None, body: bytes | None = None
    ) -> RemotingCommand:
        """The leader's reply. Raises Refused, RemotingError."""
        reply = await self.client.call(self.leader, RemotingCommand.request(code, header, body), CALL_MS)
        if reply.code != ResponseCode.SUCCESS:
            raise ControllerRefused(f"{code.name}: {reply.code} {reply.remark}")
        return reply

    async def patiently(
        self, code: RequestCode, header: Header | None, body: bytes | None = None
    ) -> RemotingCommand:
        """Do as `call`. A busy controller is asked again, and another controller is asked if the first one no longer leads."""
        for _ in range(TRIES):
            try:
                return await self.call(code, header, body)
            except (ControllerRefused, RemotingError) as error:
                last = error
                await asyncio.sleep(TRY_AGAIN_S)
                await self._look_for_leader()
        raise last

    async def _look_for_leader(self) -> None:
        for controller in self.controllers:
            request = RemotingCommand.request(RequestCode.CONTROLLER_GET_METADATA_INFO)
            with suppress(RemotingError):
                reply = await self.client.call(controller, request, CALL_MS)
                said = GetMetadataResponseHeader.from_ext(reply.ext)
                if said.is_leader and said.controller_leader_address:
                    self.leader = said.controller_leader_address

    async def register(self) -> None:
        """Register all brokers. Every broker gets its id and sends a heartbeat. Every set gets broker 1 as master, and then
        all three brokers as members."""
        await each(self.names, self._register)

    async def _register(self, name: str) -> None:
        for broker_id in REPLICAS:
            address = self.address((name, broker_id))
            await self.patiently(
                RequestCode.CONTROLLER_APPLY_BROKER_ID,
                ApplyBrokerIdHeader(name, broker_id, f"{address};1", CLUSTER),
            )
            await self.patiently(
                RequestCode.CONTROLLER_REGISTER_BROKER,
                RegisterBrokerToControllerHeader(name, broker_id, address, CLUSTER),
            )
            self.connect([(name, broker_id)])
        await self.patiently(RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterHeader(name, CLUSTER, 1))
        await self.fill(name)

    async def fill(self, name: str) -> None:
        """Wait until the set has a master, and make all three brokers members again."""
        for _ in range(TRIES):
            reply = await self.patiently(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoHeader(name))
            info, members = (
                GetReplicaInfoResponseHeader.from_ext(reply.ext),
                SyncStateSetBody.decode(reply.body),
            )
            if info.master_broker_id is not None:
                if members.sync_state_set == frozenset(REPLICAS):
                    return
                header = AlterSyncStateSetHeader(name, info.master_broker_id, info.master_epoch or 0)
                body = SyncStateSetBody(frozenset(REPLICAS), members.sync_state_set_epoch).encode()
                with suppress(ControllerRefused, RemotingError):
                    await self.call(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)
                    continue
            await asyncio.sleep(TRY_AGAIN_S)
        raise SystemExit(f"{name} does not become whole")

    async def masters(self) -> dict[str, int | None]:
        """The masters by set."""
        body = json.dumps(self.names).encode()
        reply = await self.patiently(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, body)
        table = BrokerReplicasInfo.decode(reply.body).replicas_info_table
        return {name: info.master_broker_id for name, info in table.items()}

    async def master_of(self, name: str) -> int | None:
        reply = await self.patiently(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoHeader(name))
        said = reply.ext.get("masterBrokerId")
        return int(said) if said else None

    # Connections

    @property
    def brokers(self) -> list[Broker]:
        return [(name, broker_id) for name in self.names for broker_id in REPLICAS]

    def connect(self, brokers: Iterable[Broker], controllers: Iterable[str] = ()) -> list[socket.socket]:
        """Open a new connection of each broker to each controller (all, if none is named), and send a heartbeat over it.
        Earlier connections stay open."""
        before = []
        for controller in list(controllers) or self.controllers:
            host, _, port = controller.rpartition(":")
            for broker in brokers:
                connection = socket.create_connection((host, int(port)), timeout=30)
                connection.sendall(self._heartbeat(broker))
                older = self._sockets.pop((controller, broker), None)
                if older is not None:
                    before.append(older)
                self._sockets[controller, broker] = connection
        return before

    def beat(self, brokers: Iterable[Broker], controller: str) -> None:
        """Send a heartbeat of each broker over its connection."""
        for broker in brokers:
            self._sockets[controller, broker].sendall(self._heartbeat(broker))

    async def at_home(self, brokers: Iterable[Broker]) -> None:
        """Register them at the addresses of their heartbeats."""
        for broker in brokers:
            header = RegisterBrokerToControllerHeader(*broker, self.address(broker), CLUSTER)
            await self.patiently(RequestCode.CONTROLLER_REGISTER_BROKER, header)

    def disconnect(self, brokers: Iterable[Broker]) -> None:
        """End each broker as seen by all controllers: close its connections."""
        for broker in brokers:
            for controller in self.controllers:
                self._sockets.pop((controller, broker)).close()

    def _heartbeat(self, broker: Broker) -> bytes:
        name, broker_id = broker
        header = BrokerHeartbeatHeader(
            CLUSTER, self.address(broker), name, broker_id, 1, LOG_BYTES, LOG_BYTES, LIFETIME_MS
        )
        request = RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, header)
        request.flag |= ONEWAY_BIT
        return b"".join(encode(request))


async def each(names: Iterable[str], work: Callable[[str], Awaitable[None]]) -> None:
    """Do `work` for all names, some at a time."""
    waiting = iter(list(names))

    async def worker() -> None:
        for name in waiting:
            await work(name)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


class DiscardingListener:
    """Discards the requests of controllers to brokers, at every loopback address, in a separate thread."""

    def __init__(self, port: int) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")  # no other machine
        self._socket.bind(("0.0.0.0", port))  # noqa: S104 - of the loopback device
        self._socket.listen(4096)
        self.port: int = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="brokers' ports")
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_until_complete(self._loop.create_server(asyncio.Protocol, sock=self._socket))
        self._loop.run_forever()
        self._loop.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._socket.close()
