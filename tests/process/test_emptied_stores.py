"""Brokers of a real cluster lose their stores while they are down. Each test leaves all replicas in sync."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from localcluster.history import MessagePlace, SendAttempt, SendOutcome, judge
from localcluster.load import body_hash, read_back
from localcluster.waiting import NotYet, wait_for
from mqadmin.admin import AdminClient
from mqadmin.replies import SyncStateInfo
from mqclient.client import Client
from mqruntime.clock import SystemClock
from scripts.peers.waits import WAIT_MS


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.create(tmp_path_factory.mktemp("emptied") / "cluster") as made:
        made.start()
        asyncio.run(made.wait_whole(timeout_ms=WAIT_MS))
        yield made


def whole(cluster: Cluster) -> SyncStateInfo:
    return asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))


def sent(cluster: Cluster, topic: str, count: int) -> list[SendAttempt]:
    """Sends messages that all members of the set acknowledge."""

    async def send() -> list[SendAttempt]:
        await cluster.create_topic(topic)
        attempts = []
        async with Client(cluster.layout.namesrv, clock=SystemClock(), random=random.Random(1)) as client:
            producer = client.producer("PG")
            for number in range(count):
                result = await producer.send(topic, b"body %d" % number, keys=str(number), timeout_ms=WAIT_MS)
                assert result.acknowledged
                place = MessagePlace(str(result.queue), result.queue_offset)
                digest = body_hash(b"body %d" % number)
                attempts.append(SendAttempt(str(number), digest, SendOutcome.ACKNOWLEDGED, 0, 1, place))
        return attempts

    return asyncio.run(send())


def nothing_is_lost(cluster: Cluster, topic: str, attempts: list[SendAttempt]) -> None:
    async def read() -> None:
        async with Client(cluster.layout.namesrv, clock=SystemClock(), random=random.Random(2)) as client:
            found = await read_back(client.consumer("CG"), topic, attempts, WAIT_MS)
            assert judge(attempts, found).faults == []

    asyncio.run(read())


def slave_of(cluster: Cluster, state: SyncStateInfo) -> str:
    return next(
        name for name in cluster.layout.broker_names if cluster.layout.address(name) != state.master_address
    )


async def outside_of_the_set(cluster: Cluster, name: str) -> SyncStateInfo:
    """Waits until this broker is alive outside the set and the controllers report no master."""
    admin = AdminClient(SystemClock())

    async def probe() -> SyncStateInfo:
        state = await cluster.sync_state(admin)
        address = cluster.layout.address(name)
        alive = any(replica.alive and replica.address == address for replica in state.not_in_sync)
        if not alive or state.master_address is not None:
            raise NotYet(str(state))
        return state

    try:
        return await wait_for(f"{name} outside of the set", probe, WAIT_MS)
    finally:
        await admin.close()


async def waiting_in_the_set(cluster: Cluster, name: str) -> None:
    """Waits until this broker is alive in the set and the controllers report no master."""
    admin = AdminClient(SystemClock())

    async def probe() -> None:
        state = await cluster.sync_state(admin)
        address = cluster.layout.address(name)
        alive = any(replica.alive and replica.address == address for replica in state.in_sync)
        if not alive or state.master_address is not None:
            raise NotYet(str(state))

    try:
        await wait_for(f"{name} in a set without a master", probe, WAIT_MS)
    finally:
        await admin.close()


def ended(cluster: Cluster, name: str) -> None:
    async def probe() -> None:
        if cluster.states()[name] is not None:
            raise NotYet("it runs")

    asyncio.run(wait_for(f"the end of {name}", probe, WAIT_MS))


def kill_all_brokers(cluster: Cluster) -> None:
    """Kills all brokers while the controllers are down, so that these see all failures at once."""
    controllers = cluster.layout.controller_names
    cluster.kill(controllers)
    cluster.kill(cluster.layout.broker_names)
    cluster.start(controllers)


def test_an_emptied_member_that_returns_first_does_not_become_master(cluster: Cluster) -> None:
    attempts = sent(cluster, "First", 200)
    emptied = slave_of(cluster, whole(cluster))
    kill_all_brokers(cluster)
    store = cluster.directory / emptied
    for path in store.iterdir():
        if path.name != "brokerIdentity":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    cluster.start([emptied])
    state = asyncio.run(outside_of_the_set(cluster, emptied))
    assert len(state.in_sync) == 3
    assert "joins as a new replica" in cluster.log_file(emptied).read_text()
    cluster.start()
    assert whole(cluster).master_address != cluster.layout.address(emptied)
    nothing_is_lost(cluster, "First", attempts)


def test_a_member_after_a_machine_crash_does_not_lead_while_others_may_return(cluster: Cluster) -> None:
    attempts = sent(cluster, "Forgetful", 200)
    forgetful = slave_of(cluster, whole(cluster))
    kill_all_brokers(cluster)
    mark = cluster.directory / forgetful / "memoryMark"
    assert mark.read_text().startswith("boot=")
    mark.write_text("boot=another\n")
    cluster.start([forgetful])
    asyncio.run(waiting_in_the_set(cluster, forgetful))
    assert "the machine went down while this store was open" in cluster.log_file(forgetful).read_text()
    cluster.start()
    assert whole(cluster).master_address != cluster.layout.address(forgetful)

    async def has_caught_up() -> None:
        if "lost" in mark.read_text():
            raise NotYet(mark.read_text())

    asyncio.run(wait_for("a complete log", has_caught_up, WAIT_MS))
    nothing_is_lost(cluster, "Forgetful", attempts)


def test_a_member_without_its_log_folder_gives_a_hint_and_then_rejoins(
    cluster: Cluster,
) -> None:
    attempts = sent(cluster, "Second", 20)
    name = slave_of(cluster, whole(cluster))
    store: Path = cluster.directory / name
    identity = (store / "brokerIdentity").read_bytes()
    cluster.stop([name])
    shutil.rmtree(store / "commitlog")
    cluster.start([name])
    ended(cluster, name)
    assert "mount that and start again; if it is lost, empty storePathRootDir" in cluster.log_tail(name)
    shutil.rmtree(store)
    store.mkdir()
    cluster.start([name])
    whole(cluster)
    assert (store / "brokerIdentity").read_bytes() != identity
    nothing_is_lost(cluster, "Second", attempts)
