"""The log of running brokers is read up to their confirm offset: during writes and after a failover. Under
contract A it is refused."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from localcluster.history import SendOutcome
from localcluster.load import SteadyLoad
from messagestore.contractmark import FILE as CONTRACT_A
from mqclient.client import Client
from mqruntime.clock import SystemClock
from scripts.peers.waits import WAIT_MS
from sparkreplay.errors import UncommittedRefused
from sparkreplay.store.bound import checkpoint_bound
from sparkreplay.store.files import LocalFiles
from sparkreplay.store.snapshot import StoreSnapshot, open_store, up_to
from tests.support.waiting import wait_until
from tests.unit.sparkreplay.storerows import rows_of_store

TOPIC = "live"
SEGMENT_BYTES = 64 * 1024


def master_of(cluster: Cluster) -> str:
    state = asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
    address = state.master_address
    assert address is not None
    name = cluster.layout.name_of(address)
    assert name is not None
    return name


def opened(cluster: Cluster, name: str, *asked: str) -> StoreSnapshot:
    return open_store(
        str(cluster.directory / name), address=";".join(map(cluster.layout.address, asked)) if asked else None
    )


def rows_up_to(store: StoreSnapshot, bound: int) -> list[tuple[object, ...]]:
    rows = rows_of_store(up_to(store, bound), 30_000)
    return [
        (row["physical_offset"], row["keys"], row["body"], row["epoch"])
        for row in rows
        if row["topic"] == TOPIC
    ]


async def read_while_sending(cluster: Cluster, master: str, looks: int) -> None:
    """Each look at the master's log up to its own bound has all messages acknowledged before. The other
    replicas have the same rows up to their own bounds."""
    clock = SystemClock()
    async with Client(cluster.layout.namesrv, clock=clock, random=random.Random(3)) as client:
        load = SteadyLoad(
            client.producer("PG"), TOPIC, queues=4, clock=clock, random=random.Random(5), interval_ms=20
        )
        load.start()
        for look in range(looks):
            assert await load.acknowledged_after(clock.now_ms(), WAIT_MS, count=40)
            acknowledged = {
                attempt.message_id for attempt in load.attempts if attempt.outcome is SendOutcome.ACKNOWLEDGED
            }
            store = await asyncio.to_thread(opened, cluster, master, master)
            assert store.bound_source.startswith("broker ")
            rows = await asyncio.to_thread(rows_up_to, store, store.bound)
            keys = [key for _, key, _, _ in rows]
            assert acknowledged <= set(keys), f"look {look}"
            for name in cluster.layout.broker_names:
                replica = await asyncio.to_thread(opened, cluster, name, name, master)
                common = min(replica.bound, store.bound)
                ours = await asyncio.to_thread(rows_up_to, replica, common)
                assert ours == await asyncio.to_thread(rows_up_to, store, common)
        await load.stop()


def test_rows_below_the_live_bound_are_the_acknowledged_messages(
    tmp_path: Path,
) -> None:
    with Cluster.create(tmp_path / "cluster", segment_bytes=SEGMENT_BYTES) as cluster:
        cluster.start()
        master = master_of(cluster)
        asyncio.run(cluster.create_topic(TOPIC))
        asyncio.run(read_while_sending(cluster, master, looks=3))
        before = opened(cluster, master, master)
        rows = rows_up_to(before, before.bound)
        cluster.kill([master])
        asyncio.run(cluster.wait_in_sync(2, timeout_ms=WAIT_MS))
        others = [name for name in cluster.layout.broker_names if name != master]
        dead = opened(cluster, master, *others)
        assert dead.bound == checkpoint_bound(LocalFiles(str(cluster.directory / master)))
        assert rows_up_to(dead, dead.bound) == [row for row in rows if row[0] < dead.bound]
        cluster.start([master])
        successor = master_of(cluster)
        assert successor != master
        asyncio.run(read_while_sending(cluster, successor, looks=1))
        after = opened(cluster, successor, successor)
        assert rows_up_to(after, before.bound) == rows, "committed rows never change"
        assert not (cluster.directory / master / CONTRACT_A).exists()


def test_the_stores_of_brokers_under_contract_a_are_read_only_with_the_option(tmp_path: Path) -> None:
    settings = {"allAckInSyncStateSet": "false"}
    with Cluster.create(tmp_path / "cluster", controllers=1, brokers=2, broker_settings=settings) as cluster:
        cluster.start()
        master_of(cluster)
        for name in cluster.layout.broker_names:
            epochs = cluster.directory / name / "epochFileCheckpoint"
            wait_until("its first epoch, a moment after a slave is in the set", epochs.exists)
            assert (cluster.directory / name / CONTRACT_A).read_text() == "contract=A\nepoch=-1\nfrom=0\n"
            with pytest.raises(UncommittedRefused, match="ran contract A"):
                opened(cluster, name)
            assert open_store(str(cluster.directory / name), allow_uncommitted=True).contract == "A"
