"""A disk fills during sends: acknowledged messages stay readable, and the others continue without that
replica.

The disk is a small file system in memory. Only root may mount it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localcluster.cluster import Cluster
from localcluster.history import SendOutcome, judge
from localcluster.layout import BROKER_SET, CLUSTER_NAME, Mode
from localcluster.load import SteadyLoad, read_back
from localcluster.raftset import transfer
from mqadmin.admin import AdminClient
from mqadmin.replies import SyncStateInfo
from mqclient.client import Client
from mqruntime.clock import SystemClock
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS
from tests.process.smalldisk import small_disk

DISK_BYTES = 6 << 20
FULL = "broker-0"
KEPT_WHOLE = {"cleanFileForciblyEnable": "false", "diskSpaceWarningLevelRatio": "100"}
BURST = 6_000  # of about 1 KiB, so about 7 MiB


@contextmanager
def with_a_small_disk(tmp_path: Path, mode: Mode, **settings: str) -> Iterator[Cluster]:
    """Three brokers, the store of one of them on the small disk."""
    settings |= {"mappedFileSizeConsumeQueue": "200000", **KEPT_WHOLE}
    layout: dict[str, Any] = {"segment_bytes": 1 << 20, "broker_settings": settings, "mode": mode}
    with (
        small_disk(tmp_path / "small", DISK_BYTES) as disk,
        Cluster.create(tmp_path / "cluster", controllers=1, **layout) as made,
    ):
        file = made.directory / f"{FULL}.conf"
        store = str(made.directory / FULL)
        assert f"storePathRootDir={store}\n" in file.read_text()
        file.write_text(file.read_text().replace(store, str(disk / "store")))
        made.start()
        asyncio.run(made.wait_whole(timeout_ms=WAIT_MS))
        yield made


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with with_a_small_disk(tmp_path, Mode.CONTROLLER, **NOBODY_IS_LATE) as made:
        yield made


@pytest.fixture
def raft_set(tmp_path: Path) -> Iterator[Cluster]:
    with with_a_small_disk(tmp_path, Mode.RAFT) as made:
        yield made


async def lead(cluster: Cluster, wanted: bool) -> SyncStateInfo:
    """Makes the broker on the small disk the master, or another one."""
    state = await cluster.wait_whole(timeout_ms=WAIT_MS)
    if (cluster.layout.name_of(state.master_address or "") == FULL) is wanted:
        return state
    fit = (
        replica.broker_id
        for replica in state.in_sync
        if (cluster.layout.name_of(replica.address) == FULL) is wanted
    )
    admin = AdminClient(SystemClock())
    try:
        await admin.elect_master(cluster.layout.controller_list, CLUSTER_NAME, BROKER_SET, next(fit))
    finally:
        await admin.close()
    return await cluster.wait_whole(timeout_ms=WAIT_MS)


async def filled(cluster: Cluster, *, goes_on: bool) -> Counter[SendOutcome]:
    """Sends until the small disk is full; no acknowledged message may be missing afterwards."""
    clock = SystemClock()
    await cluster.create_topic("Filling", 4)
    async with Client(cluster.layout.namesrv, clock=clock, random=random.Random(3)) as client:
        load = SteadyLoad(client.producer("PG"), "Filling", queues=4, clock=clock, random=random.Random(4))
        await load.send_burst(BURST, in_flight=100, progress=lambda ended: None)
        if goes_on:
            load.start()
            assert await load.acknowledged_after(clock.now_ms(), WAIT_MS, count=20)
            await load.stop()
        found = await read_back(client.consumer("CG"), "Filling", load.attempts, WAIT_MS)
        assert judge(load.attempts, found).faults == []
        return Counter(attempt.outcome for attempt in load.attempts)


def said_calmly(cluster: Cluster) -> bool:
    """Whether no log has a traceback or 100 lines."""
    texts = [cluster.log_file(name).read_text() for name in cluster.layout.names]
    return all("Traceback" not in text and text.count("\n") < 100 for text in texts)


def test_a_slave_with_a_full_disk_leaves_the_set_and_the_others_continue(cluster: Cluster) -> None:
    before = asyncio.run(lead(cluster, False))
    asyncio.run(filled(cluster, goes_on=True))
    assert "make room on this broker's disk" in cluster.log_file(FULL).read_text()
    after = asyncio.run(cluster.wait_in_sync(2, timeout_ms=WAIT_MS))
    assert (after.master_id, after.master_epoch) == (before.master_id, before.master_epoch)
    assert FULL not in [cluster.layout.name_of(replica.address) for replica in after.in_sync]
    assert said_calmly(cluster)


def test_a_master_with_a_full_disk_refuses_sends_and_keeps_stored_messages(cluster: Cluster) -> None:
    asyncio.run(lead(cluster, True))
    outcomes = asyncio.run(filled(cluster, goes_on=False))
    assert outcomes[SendOutcome.ACKNOWLEDGED] > 1000 and outcomes[SendOutcome.REFUSED] > 0
    assert said_calmly(cluster)


async def leads_in_raft_mode(cluster: Cluster, name: str) -> bool:
    state = await cluster.wait_whole(timeout_ms=WAIT_MS)
    return cluster.layout.name_of(state.master_address or "") == name


def test_a_raft_mode_leader_with_a_full_disk_hands_over_leadership(raft_set: Cluster) -> None:
    if not asyncio.run(leads_in_raft_mode(raft_set, FULL)):
        asyncio.run(transfer(raft_set.layout, 1 + raft_set.layout.broker_names.index(FULL)))
    before = raft_set.states()
    asyncio.run(filled(raft_set, goes_on=True))
    text = raft_set.log_file(FULL).read_text()
    assert "takes no entries, retrying; make room on this member's disk" in text
    assert raft_set.states() == before  # no process has ended
    assert said_calmly(raft_set)
