"""Contract D: an acknowledged message is on the disk of every member, so no power loss removes it."""

from __future__ import annotations

import errno

import pytest

from broker.settings.broker import BrokerSettings
from mqclient.producer import SendStatus
from mqruntime.settings import SettingsError
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster

D = {"flushDiskType": "SYNC_FLUSH", "allFlushInSyncStateSet": True, "flushIntervalCommitLog": 60_000}
BODIES = [f"message {number}".encode() for number in range(20)]


def filled(world: World, brokers: int = 3) -> Cluster:
    cluster = Cluster(world, brokers, **D)
    cluster.start_up()
    results = cluster.run(cluster.send_all(BODIES))
    assert all(result.status is SendStatus.SEND_OK for result in results)
    return cluster


def lose_power(node: Node) -> None:
    node.disk.share_kept = 0.0
    node.kill(power_cut=True)


def assert_all_there(cluster: Cluster) -> None:
    found = [bytes(message.body) for message in cluster.run(cluster.read_all())]
    assert sorted(set(found)) == sorted(BODIES)


def test_no_message_is_lost_when_all_lose_power_and_any_two_return() -> None:
    for absent in range(3):
        with World(300 + absent) as world:
            cluster = filled(world)
            for node in cluster.brokers:
                lose_power(node)
            for number, node in enumerate(cluster.brokers):
                if number != absent:
                    cluster.start(node)
            cluster.brokers.pop(absent)
            cluster.wait_in_sync(2, 60_000)
            assert_all_there(cluster)


def test_a_member_that_lost_power_is_elected_like_any_other() -> None:
    with World(310) as world:
        cluster = filled(world)
        master = cluster.master
        for node in cluster.brokers:
            lose_power(node)
        others = [node for node in cluster.brokers if node is not master]
        cluster.start(others[0])
        world.run_until(lambda: bool(cluster.masters), 60_000)
        assert not cluster.app(others[0]).memory_mark.may_have_lost_data


def test_a_slow_disk_of_a_slave_delays_acknowledgements_only() -> None:
    with World(320) as world:
        cluster = filled(world)
        slave = cluster.slaves[0]
        slave.disk.stall(1_000)
        began_s = world.loop.time()
        (result,) = cluster.run(cluster.send_all([b"late"]))
        assert result.status is SendStatus.SEND_OK
        assert world.loop.time() - began_s >= 1.0
        assert cluster.app(slave).store.flushed_offset() == cluster.app(slave).store.max_offset()


def test_a_slave_that_does_not_wait_for_its_disk_stays_out_of_the_set() -> None:
    with World(330) as world:
        cluster = Cluster(world, 2, **D)
        cluster.start_up()
        cluster.brokers.append(world.node("early", "10.0.2.9"))
        cluster.start(cluster.brokers[-1], allFlushInSyncStateSet=False)
        world.run_for_ms(10_000)
        assert cluster.in_sync(2)
        (result,) = cluster.run(cluster.send_all([b"counted by two"]))
        assert result.status is SendStatus.SEND_OK


def test_data_left_in_memory_by_a_failed_sync_is_on_disk_before_it_is_acknowledged() -> None:
    """After a failed sync the kernel treats the unwritten pages as clean, and the next sync succeeds."""
    with World(501) as world:
        cluster = Cluster(world, 2, **D)
        cluster.start_up()
        for node in cluster.brokers:
            node.disk.fail_next("sync", OSError(errno.EIO, "Input/output error"), where="commitlog")
        sending = world.loop.create_task(cluster.send_all([b"unwritten" * 2_000]))
        world.run_until(lambda: all(node.failure is not None for node in cluster.brokers), 20_000)
        for node in cluster.brokers:
            cluster.start(node)
        world.run_until(sending.done, 60_000)
        cluster.wait_in_sync(2, 30_000)
        cluster.run(cluster.send_all(BODIES))
        for node in cluster.brokers:
            lose_power(node)
        for node in cluster.brokers:
            cluster.start(node)
        cluster.wait_in_sync(2, 60_000)
        found = {bytes(message.body) for message in cluster.run(cluster.read_all())}
        assert found >= {*BODIES, b"unwritten" * 2_000}


@pytest.mark.parametrize(
    "other",
    [{"flushDiskType": "ASYNC_FLUSH"}, {"flushDiskType": "SYNC_FLUSH", "allAckInSyncStateSet": "false"}],
)
def test_settings_that_contradict_contract_d_are_refused(other: dict[str, str]) -> None:
    overrides = [f"{key}={value}" for key, value in other.items()]
    with pytest.raises(SettingsError, match="allFlushInSyncStateSet=true promises .* needs"):
        BrokerSettings.load(None, ["allFlushInSyncStateSet=true", *overrides])
