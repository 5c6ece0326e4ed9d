"""Disks restored from an older image: no acknowledged message is lost, and a master is elected."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from broker.app import BrokerApp
from broker.neighbours.tablecopy import TableCopy
from controller.holdingsfile import FILE as HOLDINGS
from simulation.kernel.images import image_of, restore
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster
from tests.cluster.memoryloss import FIRST, SECOND, assert_all_there, filled, members, no_master_for

LONG_MS = 30_000


def join(cluster: Cluster, node: Node) -> None:
    """Starts the node, and waits until it knows that it is in the set."""
    cluster.start(node)
    cluster.world.run_until(
        lambda: isinstance(node.app, BrokerApp) and node.app.membership.in_sync and node.app.ha.follows,
        30_000,
    )


def start_first(cluster: Cluster, node: Node) -> None:
    """Starts the node alone first, and the others later."""
    cluster.start(node)
    cluster.world.run_for_ms(LONG_MS)
    for other in cluster.brokers:
        if other is not node:
            cluster.start(other)
    cluster.wait_in_sync(len(cluster.brokers), 60_000)


@pytest.mark.parametrize("quiet_ms", [0, 1_500])
def test_no_message_is_lost_when_an_old_copy_of_a_slave_is_restored_after_a_kill_of_all(
    quiet_ms: int,
) -> None:
    with World(201) as world:
        cluster = filled(world)
        slave = cluster.slaves_by_id()[0]
        world.run(slave.stop())
        image = image_of(slave.disk)
        join(cluster, slave)
        cluster.run(cluster.send_all(SECOND))
        world.run_for_ms(quiet_ms)
        for node in cluster.brokers:
            node.kill()
        restore(slave.disk, image)
        start_first(cluster, slave)
        assert_all_there(cluster)


def last_of_its_set(cluster: Cluster) -> Node:
    """Kills the others one by one until the master is alone in its set, then kills it and sets its disk back.

    The restored image is older than the last messages, which all members hold.
    """
    world, last = cluster.world, cluster.master
    image = image_of(last.disk)
    cluster.run(cluster.send_all(SECOND))
    for at, node in enumerate(cluster.slaves_by_id()):
        node.kill()
        world.run_until(lambda at=at: len(members(cluster)) == 2 - at, 60_000)
    last.kill()
    restore(last.disk, image)
    return last


@pytest.mark.parametrize("least", [2, 1])
def test_a_last_replica_whose_disk_is_set_back_does_not_lead(
    least: int, caplog: pytest.LogCaptureFixture
) -> None:
    with World(202) as world:
        cluster = filled(world, minInSyncReplicas=least)
        last = last_of_its_set(cluster)
        others = [node for node in cluster.brokers if node is not last]
        cluster.start(last)
        no_master_for(world, cluster, LONG_MS)
        for node in others:
            cluster.start(node)
        if least == 1:
            no_master_for(world, cluster, LONG_MS)
            assert "set back" in caplog.text
            return
        cluster.wait_in_sync(3, 60_000)
        assert_all_there(cluster)


def test_a_restored_snapshot_of_an_open_store_is_recognized_as_old() -> None:
    with World(203) as world:
        cluster = filled(world)
        slave = cluster.slaves_by_id()[0]
        image = image_of(slave.disk)
        world.run_for_ms(5_000)
        cluster.run(cluster.send_all(SECOND))
        for node in cluster.brokers:
            node.kill()
        restore(slave.disk, image)
        start_first(cluster, slave)
        assert_all_there(cluster)


def test_controllers_that_lost_heartbeat_data_still_recognize_an_old_disk() -> None:
    with World(204) as world:
        cluster = filled(world)
        slave = cluster.slaves_by_id()[0]
        world.run(slave.stop())
        image = image_of(slave.disk)
        join(cluster, slave)
        cluster.run(cluster.send_all(SECOND))
        controllers = [node for name, node in world.nodes.items() if name.startswith("controller")]
        for node in (*controllers, *cluster.brokers):
            node.kill(power_cut=node in controllers)
        for node in controllers:
            node.disk.wipe(HOLDINGS)
        restore(slave.disk, image)
        cluster.start_controllers()
        start_first(cluster, slave)
        assert_all_there(cluster)


def test_a_disk_that_was_set_back_is_complete_once_it_caught_up_with_a_master(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with World(205) as world:
        cluster = filled(world)
        slave = cluster.slaves_by_id()[0]
        world.run(slave.stop())
        image = image_of(slave.disk)
        join(cluster, slave)
        slave.kill()
        restore(slave.disk, image)
        cluster.start(slave)
        cluster.run(cluster.send_all(SECOND))
        assert any(record.getMessage() == "disk set back" for record in caplog.records)
        world.run_until(lambda: not cluster.app(slave).memory_mark.may_have_lost_data, 10_000)
        caplog.clear()
        world.run(slave.stop())
        cluster.start(slave)
        world.run_for_ms(3_000)
        cluster.wait_in_sync(3, 30_000)
        assert not any(record.getMessage() == "disk set back" for record in caplog.records)
        assert_all_there(cluster)


def test_after_all_disks_were_set_back_only_an_operator_elects_a_master() -> None:
    with World(206) as world:
        cluster = filled(world)
        images = [image_of(node.disk) for node in cluster.brokers]
        world.run_for_ms(5_000)
        for node, image in zip(cluster.brokers, images, strict=True):
            node.kill()
            restore(node.disk, image)
            cluster.start(node)
        no_master_for(world, cluster, LONG_MS)
        cluster.run(cluster.designate(cluster.app(cluster.brokers[0]).membership.broker_id))
        cluster.wait_in_sync(3, 30_000)
        assert set(FIRST) == {bytes(message.body) for message in cluster.run(cluster.read_all())}


def test_a_disk_that_was_set_back_is_incomplete_until_it_copied_the_masters_tables() -> None:
    with World(207) as world:
        cluster = filled(world)
        slave = cluster.slaves_by_id()[0]
        world.run(slave.stop())
        image = image_of(slave.disk)
        join(cluster, slave)
        slave.kill()
        restore(slave.disk, image)
        with patch.object(TableCopy, "is_copied", False):
            cluster.start(slave)
            cluster.run(cluster.send_all(SECOND))
            world.run_for_ms(3_000)
            app = cluster.app(slave)
            assert app.store.max_offset() == cluster.app(cluster.master).store.max_offset()
            assert app.memory_mark.was_set_back, "a topic created since may be missing here"
        world.run_until(lambda: not app.memory_mark.may_have_lost_data, 15_000)


def test_an_old_disk_restarted_while_controllers_are_down_is_still_recognized_as_old() -> None:
    with World(208) as world:
        cluster = filled(world)
        slave = cluster.slaves_by_id()[0]
        world.run(slave.stop())
        image = image_of(slave.disk)
        join(cluster, slave)
        cluster.run(cluster.send_all(SECOND))
        for node in world.nodes.values():
            if node.name.startswith(("controller", "broker")):
                node.kill()
        restore(slave.disk, image)
        for _ in range(3):
            cluster.start(slave)
            world.run_for_ms(10_000)
            slave.kill()
        cluster.start_controllers()
        start_first(cluster, slave)
        assert_all_there(cluster)
