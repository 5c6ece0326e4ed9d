"""A strange host sends bytes that no peer would send to every port of the cluster.

Invariant: a server that gets such bytes keeps serving others. The run fails if a server ends because of them, or if its answer
shows an unexpected exception."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from ha.frames import Handshake, TransferHeader, encode_ack
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.frame import encode
from simulation.cluster.machines import Machines
from simulation.cluster.members import BROKER_PORT, CONTROLLER_PORT, NAMESRV_PORT
from simulation.faults.fault import Fault
from simulation.faults.strangers import HA_PORT
from simulation.kernel.node import Node

FIRST_MS = (3_000, 10_000)
BETWEEN_MS = (500, 3_000)
STAYS_MS = (0, 20, 4_000)


class HostileFrames(Fault):
    """An independent fault with its own random generator and a separate host."""

    name = "hostile frames"

    def __init__(self, machines: Machines, node: Node) -> None:
        super().__init__(machines)
        self.node = node
        self.random = random.Random(f"{machines.world.seed}/hostile")
        self.due_ms: int | None = self.random.randint(*FIRST_MS)

    def next_step(self) -> None:
        if self.due_ms is not None and self.world.now_ms >= self.due_ms:
            self.due_ms = self.world.now_ms + self.random.randint(*BETWEEN_MS)
            target = self.random.choice([self.machines.namesrv, *self.machines.servers])
            frames, port = remoting_frames(self.random), NAMESRV_PORT
            if target in self.machines.controllers:
                port = CONTROLLER_PORT
            elif target is not self.machines.namesrv:
                port = BROKER_PORT
                if self.random.random() < 0.5:
                    frames, port = replication_frames(self.random), HA_PORT
            self.node.spawn(say(target.host, port, frames, self.random.choice(STAYS_MS)))
            self.count()

    def heal(self) -> None:
        self.due_ms = None


async def say(host: str, port: int, data: bytes, stays_ms: int) -> None:
    """Send the bytes, and nothing more until the connection is closed."""
    with suppress(OSError):
        _, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(data)
            await asyncio.sleep(stays_ms / 1000)
        finally:  # also if the world ends meanwhile
            writer.transport.abort()


def remoting_frames(chance: random.Random) -> bytes:
    """A frame that a reader must reject, or a request that no server may act on."""
    command = RemotingCommand.request(chance.choice(list(RequestCode)), {"brokerName": "../x"}, b"{")
    request = bytearray(b"".join(encode(command)))
    match chance.randrange(6):
        case 0:
            return chance.choice((0, 1, 3, 2**24 + 1, 2**31 - 1, 2**32 - 1)).to_bytes(4, "big") + b"\0" * 8
        case 1:
            return b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        case 2:
            return chance.randbytes(chance.randint(1, 300))
        case 3:
            return bytes(request[: chance.randrange(1, len(request))])
        case 4:
            request[chance.randrange(len(request))] ^= 1 << chance.randrange(8)
            return bytes(request)
        case _:
            return bytes(request)


def replication_frames(chance: random.Random) -> bytes:
    """A frame that the master of a set must not believe."""
    far = chance.choice((-1, 0, 2**62, 2**63 - 1))
    match chance.randrange(5):
        case 0:
            return chance.randbytes(chance.randint(1, 100))
        case 1:
            return TransferHeader(
                chance.choice((-1, 2**31 - 1)), far, chance.choice((-1, 2**31 - 1)), far, far
            ).encode()
        case 2:
            return Handshake(chance.choice((-1, 0, 77, 2**31 - 1))).encode() + encode_ack(far)
        case 3:
            return Handshake(chance.choice((1, 2, 3))).encode() * 2 + encode_ack(far)
        case _:
            return Handshake(1).encode()[: chance.randint(1, 15)]
