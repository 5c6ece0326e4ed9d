"""Connections of one server without a network, on a clock that advances by the cost of handlers."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from remoting.command import RemotingCommand
from remoting.connections import Connections
from remoting.frame import FrameReader
from remoting.limits import Limits
from remoting.peer import Peer
from remoting.router import Router

ASK, LATER, SEND, BIG = 60_001, 60_002, 60_003, 60_004
COST_US = 500


class WorkingClock:
    """Advances by the cost of the handlers."""

    def __init__(self) -> None:
        self.us = 0

    def now_ms(self) -> int:
        return self.us // 1000

    def monotonic_ms(self) -> int:
        return self.us // 1000

    def work_us(self) -> int:
        return self.us


class Wire:
    """The transport of one connection: bytes to read, and bytes written."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reads = True
        self.unsent = 0
        self.written = FrameReader()
        self.answers: list[RemotingCommand] = []
        self.cut = False

    def get_extra_info(self, name: str) -> object:
        return None if name == "ssl_object" else self.name

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.cut

    def writelines(self, buffers: list[bytes]) -> None:
        self.answers += self.written.receive(b"".join(map(bytes, buffers)))

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def abort(self) -> None:
        self.cut = True


class Bench:
    """Connections of one server. `handled` lists the connection of each request handled in this turn."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.clock = WorkingClock()
        self.handled: list[str] = []
        self.batches: list[int] = []
        router = Router()
        router.add(ASK, self._ask)
        router.add(LATER, self._later)
        router.add(BIG, self._big)
        router.add_batch({SEND}, self._send)
        self.release = asyncio.Event()
        self.connections = Connections(router, self.clock, limits or Limits())

    def connect(self, name: str) -> Peer:
        peer = self.connections.protocol()
        peer.connection_made(cast(Any, Wire(name)))
        return peer

    def _ask(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        self.handled.append(peer.remote_address)
        self.clock.us += COST_US
        return command.reply()

    def _big(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        self.handled.append(peer.remote_address)
        peer.pause_writing()
        return command.reply()

    async def _later(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        self.handled.append(peer.remote_address)
        await self.release.wait()
        return command.reply()

    def _send(self, peer: Peer, commands: list[RemotingCommand]) -> None:
        self.batches.append(len(commands))
        self.clock.us += COST_US * len(commands)
        peer.send([command.reply() for command in commands])

    async def turn(self) -> list[str]:
        """The connections whose requests are handled in the next turn of the loop."""
        self.handled = []
        await asyncio.sleep(0)
        return self.handled


def wire(peer: Peer) -> Wire:
    return cast(Wire, peer._transport)
