"""A server with a handler of each kind and a client, over real loopback, and their recorded events."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mqruntime.clock import SystemClock
from remoting.client import CLIENT_LIMITS, RemotingClient
from remoting.command import RemotingCommand
from remoting.frame import FrameReader, encode
from remoting.headers.controller import GetReplicaInfoHeader
from remoting.limits import Limits
from remoting.peer import Peer
from remoting.router import Router
from remoting.server import RemotingServer
from scripts.peers.waits import WAIT_MS

ECHO, SILENT, BROKEN, STRICT, LATER, BUG, BATCH_A, BATCH_B, DISK_FULL = range(60_001, 60_010)
request = RemotingCommand.request


class Scene:
    """A server with a handler of each kind, a client, and their recorded events."""

    def __init__(self, server_limits: Limits, client_limits: Limits) -> None:
        self.fatal: list[BaseException] = []
        self.batches: list[list[bytes]] = []
        self.release = asyncio.Event()
        self.connected: list[Peer] = []
        self.disconnected: asyncio.Queue[Peer] = asyncio.Queue()
        router = Router(on_fatal=self.fatal.append)
        router.add(ECHO, lambda peer, command: command.reply(body=command.body))
        router.add(SILENT, lambda peer, command: None)
        router.add(BROKEN, self._broken)
        router.add(
            STRICT, lambda peer, command: command.reply(header=GetReplicaInfoHeader.from_ext(command.ext))
        )
        router.add(LATER, self._later)
        router.add(BUG, self._bug)
        router.add(DISK_FULL, self._disk_full)
        router.add_batch({BATCH_A, BATCH_B}, self._batch)
        clock = SystemClock()
        self.server = RemotingServer(
            router,
            host="127.0.0.1",
            port=0,
            clock=clock,
            limits=server_limits,
            on_connect=self.connected.append,
            on_disconnect=self.disconnected.put_nowait,
        )
        client_router = Router()
        client_router.add(ECHO, lambda peer, command: command.reply(body=b"client"))
        self.client = RemotingClient(clock=clock, router=client_router, limits=client_limits)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def call(self, code: int, body: bytes | None = None, timeout_ms: int = WAIT_MS) -> RemotingCommand:
        return await self.client.call(self.address, request(code, body=body), timeout_ms)

    def _broken(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        raise KeyError("no such thing")

    def _bug(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        raise AssertionError("epochs went backwards")

    def _disk_full(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        raise OSError(errno.ENOSPC, "No space left on device", "topics.json")

    async def _later(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        await self.release.wait()
        return command.reply(body=command.body)

    def _batch(self, peer: Peer, commands: list[RemotingCommand]) -> None:
        self.batches.append([bytes(command.body or b"") for command in commands])
        if commands[0].body == b"fail":
            raise OSError("disk")
        peer.write([buffer for command in commands for buffer in encode(command.reply())])


@asynccontextmanager
async def scene(
    server_limits: Limits | None = None, client_limits: Limits | None = None
) -> AsyncIterator[Scene]:
    made = Scene(server_limits or Limits(), client_limits or CLIENT_LIMITS)
    await made.server.start()
    try:
        yield made
    finally:
        await made.client.close()
        await made.server.stop()


async def raw(made: Scene, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", made.server.port, limit=1 << 24)
    writer.write(data)
    return reader, writer


async def replies(stream: asyncio.StreamReader, count: int) -> list[RemotingCommand]:
    reader, got = FrameReader(), list[RemotingCommand]()
    while len(got) < count:
        data = await stream.read(1 << 20)
        assert data, f"closed after {len(got)} of {count} replies"
        got += reader.receive(data)
    return got


def frames(*commands: RemotingCommand) -> bytes:
    for opaque, command in enumerate(commands, start=1):
        command.opaque = opaque
    return b"".join(bytes(buffer) for command in commands for buffer in encode(command))
