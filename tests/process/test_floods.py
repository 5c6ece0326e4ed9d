"""Floods of small requests on real processes: other clients are answered, and the master keeps its epoch."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from mqruntime.clock import SystemClock
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.offsets import GetMaxOffsetHeader
from scripts.peers.waits import WAIT_MS
from simulation.hostile import floods
from tests.process.hostilepeer import HostilePeer

TOPIC, QUEUES = "Orders", 4
SMALL, GROUPS, TABLES = 200_000, 5_000, 300


@pytest.mark.long
def test_a_flood_delays_no_other_client_and_deposes_no_master(tmp_path: Path) -> None:
    with Cluster.create(tmp_path / "cluster", controllers=1, brokers=2) as cluster:
        cluster.start()
        asyncio.run(floods_are_borne(cluster))


async def floods_are_borne(cluster: Cluster) -> None:
    before = await cluster.wait_whole(timeout_ms=WAIT_MS)
    await cluster.create_topic(TOPIC, QUEUES)
    port = int(before.master_address.rpartition(":")[2])
    three = [floods.small(SMALL)] * 3
    for data in (
        [floods.small(SMALL)],
        three,
        [floods.commits(GROUPS, TOPIC, QUEUES)],
        [floods.tables(TABLES)],
    ):
        peers = [HostilePeer(port) for _ in data]
        flooding = asyncio.gather(
            *(peer.say(each, stays_s=5) for peer, each in zip(peers, data, strict=True))
        )
        assert await answered_beside(before.master_address, flooding)
    after = await cluster.wait_whole(timeout_ms=WAIT_MS)
    assert (after.master_id, after.master_epoch) == (before.master_id, before.master_epoch)
    cluster.check_alive()


async def answered_beside(address: str, flooding: asyncio.Future[list[None]]) -> int:
    """The number of requests of another client that were answered during the flood."""
    client, answered = RemotingClient(clock=SystemClock()), 0
    question = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(TOPIC, 0))
    while not flooding.done():
        assert (await client.call(address, question, WAIT_MS)).code == 0
        answered += 1
        await asyncio.sleep(0.01)
    await flooding
    await client.close()
    return answered
