"""A host that is no broker acts as a slave. It makes the replication handshake in the name of a member of the set, and
acknowledges data that it discards.

Invariant: the host keeps the replication protocol, so only its address distinguishes it from that member."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ha.frames import Handshake, HandshakeReply, TransferHeader, encode_ack
from simulation.cluster.looks import broker_on
from simulation.cluster.members import BROKER_PORT
from simulation.faults.fault import Fault, Moment, NotNow

HA_PORT = BROKER_PORT + 1
HEADER_SIZE = len(TransferHeader(0, 0, 0, 0, 0).encode())
REPLY_HEADER_SIZE = 20
STAYS_MS = 6_000


class Stranger(Fault):
    """A slave is cut off from its master or killed, and another host uses the slave's id at the master for a while."""

    name = "stranger with the id of a member"
    until_ms: int | None = None

    def strike(self, now: Moment) -> bool:
        slave = self.random.choice(self.machines.slaves(now.master))
        look = broker_on(slave)
        if self.until_ms is not None or look is None or look.broker_id is None:
            raise NotNow
        if self.random.random() < 0.5:
            self.machines.kill(slave)
        else:
            self.network.cut(slave.host, now.master.host)
        self.until_ms = self.world.now_ms + STAYS_MS
        self.machines.stranger.spawn(speak_as(look.broker_id, now.master.host))
        return True

    def next_step(self) -> None:
        if self.until_ms is not None and self.world.now_ms >= self.until_ms:
            self.heal()

    def heal(self) -> None:
        self.until_ms = None
        self.machines.stranger.kill()


async def speak_as(broker_id: int, master_host: str) -> None:
    """Connect again and again, as a slave does."""
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(master_host, HA_PORT)
            try:
                await acknowledge(broker_id, reader, writer)
            finally:
                writer.transport.abort()
        await asyncio.sleep(0.05)


async def acknowledge(broker_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Acknowledge all that the master has, and all that it sends."""
    writer.write(Handshake(broker_id).encode())
    header = await reader.readexactly(REPLY_HEADER_SIZE)
    await reader.readexactly(HandshakeReply.body_size(header))
    end = HandshakeReply.decode(header, b"").max_offset
    writer.write(encode_ack(end))
    while True:
        frame = TransferHeader.decode(await reader.readexactly(HEADER_SIZE))
        await reader.readexactly(frame.body_size)
        end += frame.body_size
        writer.write(encode_ack(end))
