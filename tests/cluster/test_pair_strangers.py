"""Strangers on the replication port of a pair while a client sends and reads, on virtual time."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from broker.app import BrokerApp
from mqclient.producer import SendStatus
from simulation.hostile.links import to_pair_masters
from simulation.kernel.world import World
from tests.cluster.pairset import Pair

STAYS_S = 0.2
APART_MS = 150


async def say(host: str, data: bytes) -> None:
    """Sends the data, and keeps the connection open for a moment."""
    reader, writer = await asyncio.open_connection(host, 10_912)
    with suppress(OSError, TimeoutError):
        writer.write(data)
        await writer.drain()
        async with asyncio.timeout(STAYS_S):
            while await reader.read(1 << 16):
                pass
    writer.transport.abort()


async def say_all(host: str, log_end: int) -> None:
    for data in to_pair_masters(log_end).values():
        await asyncio.gather(*(say(host, data) for _ in range(3)))


def test_reports_of_strangers_to_a_pairs_master_acknowledge_nothing_and_stop_no_broker() -> None:
    with World(41) as world:
        pair = Pair(world, syncFlushTimeout=1_000)
        pair.start_up()
        stranger = world.node("stranger", "10.0.9.1")
        bodies = [b"message %d" % number for number in range(40)]
        pair.send(*bodies[:20])
        saying = stranger.spawn(say_all(pair.master.host, pair.end(pair.master)))
        for body in bodies[20:]:
            [result] = pair.send(body)
            assert result.status is SendStatus.SEND_OK
            assert pair.caught_up(), "a send was acknowledged before the slave held it"
            world.run_for_ms(APART_MS)
        world.run_until(saying.done, 30_000)
        assert sorted(message.body for message in pair.read()) == sorted(bodies)
        assert [type(node.app) for node in pair.nodes] == [BrokerApp] * 2, "both brokers run"
        assert pair.leads() and pair.slaves_in_step() == 1
        pair.slave.kill()
        world.run_until(lambda: pair.slaves_in_step() == 0, 5_000)
        saying = stranger.spawn(say_all(pair.master.host, pair.end(pair.master)))
        alone = {result.status for result in pair.send(*bodies)}
        world.run_until(saying.done, 30_000)
        assert SendStatus.SEND_OK not in alone
