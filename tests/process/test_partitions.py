"""Partitions between real processes that are connected through a relay.

The tests share the cluster and run in order; each leaves all replicas in sync."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from localcluster.cluster import Cluster, ClusterError
from localcluster.drill import DrillKind, DrillResult, drill_once, run_drills
from localcluster.history import Verdict, judge
from localcluster.layout import HOST_BEHIND_RELAY
from localcluster.load import SteadyLoad, read_back
from localcluster.partitions import CLIENT, NetworkPartition, Roles, Shape, draw
from localcluster.relayprocess import RelayProcess
from localcluster.waiting import NotYet, wait_for
from mqadmin.admin import AdminClient
from mqadmin.replies import SyncStateInfo
from mqclient.client import Client
from mqruntime.clock import SystemClock
from scripts.peers.waits import WAIT_MS

TWO_SHORT_ONES = 714
"""A seed whose first two partitions last less than 3 s: the first is cut twice, the other once."""


CONTROLLERS_MISS_A_BROKER = {"controllerHeartBeatTimeoutMills": "3000"}


@contextmanager
def cluster_behind_relay(
    directory: Path, broker_settings: dict[str, str]
) -> Iterator[tuple[Cluster, RelayProcess]]:
    with Cluster.create(directory, bind_host=HOST_BEHIND_RELAY, broker_settings=broker_settings) as cluster:
        cluster.start()
        with RelayProcess(cluster) as relay:
            asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
            yield cluster, relay


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, RelayProcess]]:
    directory = tmp_path_factory.mktemp("partitions") / "cluster"
    with cluster_behind_relay(directory, CONTROLLERS_MISS_A_BROKER) as made:
        yield made


async def cut_the_master_off_until_it_is_replaced(
    cluster: Cluster, relay: RelayProcess
) -> tuple[DrillResult, Verdict]:
    """The client reaches both sides all the time and sends to the master it finds."""

    async def strike(state: SyncStateInfo, master: str) -> NetworkPartition:
        slaves = [name for name in cluster.layout.broker_names if name != master]
        leader, *followers = cluster.layout.controller_names
        partition = draw(Shape.MASTER_ALONE, Roles(master, slaves, leader, followers), random.Random(1))
        assert not any(CLIENT in way for way in partition.cuts)
        relay.cut(partition.cuts)
        admin = AdminClient(SystemClock())

        async def replaced() -> None:
            now = await cluster.sync_state(admin)
            if now.master_address in (None, state.master_address) or len(now.in_sync) < 2:
                raise NotYet(str(now))

        try:
            await wait_for("a new master with a slave", replaced, WAIT_MS)
        finally:
            await admin.close()
        relay.heal(reset=True)
        return partition

    await cluster.create_topic("Cut")
    chance = random.Random(5)
    async with Client(cluster.layout.namesrv, clock=SystemClock(), random=chance) as client:
        load = SteadyLoad(client.producer("PG"), "Cut", queues=4, clock=SystemClock(), random=chance)
        load.start()
        try:
            result = await drill_once(cluster, DrillKind.PARTITION, load, 100, strike)
        finally:
            await load.stop()
        consumer = client.consumer("CG")
        return result, judge(load.attempts, await read_back(consumer, "Cut", load.attempts))


def test_acknowledged_messages_survive_partitions_drawn_from_a_seed(
    relayed: tuple[Cluster, RelayProcess],
) -> None:
    cluster, relay = relayed
    said: list[str] = []
    report = asyncio.run(
        run_drills(
            cluster,
            DrillKind.PARTITION,
            2,
            seed=TWO_SHORT_ONES,
            topic="Drawn",
            say=said.append,
            settle_ms=100,
            relay=relay,
        )
    )
    assert report.failure is None, said
    assert report.verdict is not None
    assert report.verdict.faults == []
    shapes = [drill.partition.shape for drill in report.drills if drill.partition]
    assert shapes == [Shape.MASTER_FROM_CONTROLLERS, Shape.LEADER_FROM_BROKERS]
    assert [drill.partition.rounds for drill in report.drills if drill.partition] == [2, 1]
    assert all(drill.partition and drill.partition.hold_ms < 3000 for drill in report.drills)


def test_a_master_reachable_only_by_its_client_is_replaced_without_loss(
    relayed: tuple[Cluster, RelayProcess],
) -> None:
    result, verdict = asyncio.run(cut_the_master_off_until_it_is_replaced(*relayed))
    assert verdict.faults == []
    assert verdict.acknowledged > 0
    assert result.new_master != result.old_master
    assert result.new_epoch > result.old_epoch


def test_messages_acknowledged_by_a_lone_master_are_lost_and_reported(tmp_path: Path) -> None:
    alone = {"allAckInSyncStateSet": "false", "minInSyncReplicas": "1"}
    with cluster_behind_relay(tmp_path / "cluster", {**CONTROLLERS_MISS_A_BROKER, **alone}) as made:
        _, verdict = asyncio.run(cut_the_master_off_until_it_is_replaced(*made))
    assert verdict.lost


def test_a_relay_that_cannot_run_reports_why(relayed: tuple[Cluster, RelayProcess]) -> None:
    cluster, _ = relayed
    with pytest.raises(ClusterError, match="address already in use"), RelayProcess(cluster):
        pass
