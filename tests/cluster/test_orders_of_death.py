"""Contract C under kills and power losses in many orders.

No acknowledged message is lost while fewer than minInSyncReplicas of its holders lose their memory.
A set gets a master again as soon as that is safe.
"""

from __future__ import annotations

import errno
import os

import pytest

from broker.app import BrokerApp
from controller.server import ControllerApp
from messagestore.scrub.soundness import Damage
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.brokerset import CONTROLLERS, Cluster
from tests.cluster.memoryloss import FIRST, SECOND, assert_all_there, filled, members, no_master_for

LONG_MS = 15_000


def leads(controller: Node) -> bool:
    return isinstance(controller.app, ControllerApp) and controller.app.node.is_active


def sent_without_sync(cluster: Cluster, *forgetful: Node) -> None:
    """Sends SECOND, which every member acknowledges from memory; disks of `forgetful` are not synced."""
    for node in forgetful:
        node.disk.stall(60_000)
    cluster.run(cluster.send_all(SECOND))


def lose_power(node: Node) -> None:
    node.disk.share_kept = 0.0
    node.kill(power_cut=True)
    node.disk.stall(0)


def kill(node: Node) -> None:
    node.kill()
    node.disk.stall(0)


def test_nothing_is_lost_when_the_last_live_replica_loses_its_memory() -> None:
    with World(84) as world:
        cluster = filled(world)
        last = cluster.master
        sent_without_sync(cluster, last)
        held = cluster.app(last).store.max_offset()
        others = [node for node in cluster.brokers if node is not last]
        for node in others:
            kill(node)
        world.run_until(lambda: len(members(cluster)) == 1, 10_000)
        lose_power(last)
        cluster.start(last)
        no_master_for(world, cluster, LONG_MS)
        assert cluster.app(last).store.max_offset() < held
        for node in others:
            cluster.start(node)
        cluster.wait_in_sync(3, 30_000)
        assert_all_there(cluster)


@pytest.mark.parametrize("order", [("forgetful", "killed"), ("killed", "forgetful")])
def test_nothing_is_lost_when_one_member_loses_its_memory_and_the_other_is_killed(
    order: tuple[str, ...],
) -> None:
    with World(91) as world:
        cluster = filled(world, 2)
        forgetful, killed = cluster.brokers
        sent_without_sync(cluster, forgetful)
        kill(killed)
        lose_power(forgetful)
        for name in order:
            cluster.start(killed if name == "killed" else forgetful)
            world.run_for_ms(LONG_MS)
        cluster.wait_in_sync(2, 30_000)
        assert_all_there(cluster)


def test_a_heartbeat_from_before_a_memory_loss_elects_no_master_at_a_new_controller_leader() -> None:
    with World(91) as world:
        cluster = filled(world, 2)
        killed, (forgetful,) = cluster.master, cluster.slaves_by_id()
        sent_without_sync(cluster, forgetful)
        controllers = [world.nodes[f"controller-{number}"] for number in range(len(CONTROLLERS))]
        (leader,) = (node for node in controllers if leads(node))
        for node in controllers:
            if node is not leader:
                world.network.cut(forgetful.host, node.host)
                world.network.cut(node.host, forgetful.host)
        kill(killed)
        lose_power(forgetful)
        cluster.start(forgetful)
        world.run_for_ms(1_000)
        leader.kill()
        world.run_until(lambda: any(leads(node) for node in controllers), 10_000)
        world.run_for_ms(500)
        world.network.heal()
        no_master_for(world, cluster, LONG_MS)
        cluster.start(killed)
        cluster.wait_in_sync(2, 30_000)
        assert_all_there(cluster)


@pytest.mark.parametrize("stopped", [True, False])
def test_a_member_with_a_failed_sync_is_not_elected_after_a_power_loss(
    stopped: bool,
) -> None:
    with World(91) as world:
        cluster = filled(world, 2)
        forgetful, killed = cluster.brokers
        forgetful.disk.fail_next("sync", OSError(errno.EIO, os.strerror(errno.EIO)), times=1_000)
        cluster.run(cluster.send_all(SECOND))
        kill(killed)
        world.run_until(lambda: not forgetful.running, 10_000)
        forgetful.disk.mend()
        cluster.start(forgetful)
        no_master_for(world, cluster, 3_000)
        if stopped:
            world.run(forgetful.stop())
        lose_power(forgetful)
        cluster.start(forgetful)
        no_master_for(world, cluster, LONG_MS)
        cluster.start(killed)
        cluster.wait_in_sync(2, 30_000)
        assert_all_there(cluster)


def test_nothing_is_lost_when_the_master_and_the_next_elected_slave_die_together() -> None:
    with World(83) as world:
        cluster = filled(world)
        cluster.run(cluster.send_all(SECOND))
        master, (elected, survivor) = cluster.master, cluster.slaves_by_id()
        master.kill()
        world.run_for_ms(60)
        elected.kill()
        cluster.start(master)
        world.run_until(lambda: bool(cluster.masters), LONG_MS)
        assert cluster.master in (survivor, master)
        cluster.wait_in_sync(2)
        assert_all_there(cluster)


def test_nothing_is_lost_when_an_elected_broker_dies_before_it_acts_without_a_minimum() -> None:
    with World(84) as world:
        cluster = filled(world, minInSyncReplicas=1)
        cluster.run(cluster.send_all(SECOND))
        master, (elected, survivor) = cluster.master, cluster.slaves_by_id()
        elected.pause(60_000)
        master.kill()
        world.run_for_ms(200)
        elected.kill()
        world.run_until(lambda: bool(cluster.masters), LONG_MS)
        assert cluster.master is survivor
        world.run_for_ms(500)  # the name server learns the new master
        assert_all_there(cluster)


def test_messages_held_only_by_the_master_are_not_readable_below_the_minimum() -> None:
    with World(85) as world:
        cluster = filled(world)
        cluster.run(cluster.send_all(SECOND))
        world.run_for_ms(1_000)
        master = cluster.master
        for node in cluster.slaves_by_id():
            world.network.cut(node.host, master.host)
        task = world.loop.create_task(cluster.send_all([b"for nobody"]))
        world.run_until(lambda: len(members(cluster)) == 1, 40_000)
        world.run_for_ms(2_000)
        task.cancel()
        app = cluster.app(master)
        assert app.store.max_offset() > app.store.confirm_offset(), "the message is stored"
        assert_all_there(cluster)


def test_a_slave_does_not_follow_a_master_that_is_missing_confirmed_data(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Beyond the contract: an operator elects the member with the shorter log."""
    with World(84) as world:
        cluster = filled(world, 2)
        short, whole = cluster.brokers
        sent_without_sync(cluster, short)
        world.run_for_ms(3_000)
        kill(whole)
        lose_power(short)
        cluster.start(short)
        no_master_for(world, cluster, LONG_MS)
        broker_id = cluster.app(short).membership.broker_id
        cluster.run(cluster.designate(broker_id))
        cluster.start(whole)
        world.run_for_ms(LONG_MS)
        assert cluster.app(whole).store.max_offset() > cluster.app(short).store.max_offset()
        assert any("does not follow its master" in record.message for record in caplog.records)
        cluster.run(cluster.designate(cluster.app(whole).membership.broker_id))
        cluster.wait_in_sync(2, 30_000)
        assert_all_there(cluster)


def test_allow_truncation_to_lets_a_replica_drop_confirmed_data() -> None:
    with World(84) as world:
        cluster = filled(world, 2)
        end = cluster.app(cluster.brokers[0]).store.max_offset()
        short, whole = cluster.brokers
        sent_without_sync(cluster, short)
        both = cluster.app(cluster.brokers[0]).store.max_offset()
        world.run_for_ms(3_000)
        kill(whole)
        lose_power(short)
        cluster.start(short)
        no_master_for(world, cluster, LONG_MS)
        cluster.run(cluster.designate(cluster.app(short).membership.broker_id))
        cluster.start(whole)
        world.run_for_ms(LONG_MS)
        app = whole.app
        assert isinstance(app, BrokerApp)
        app.settings.allow_truncation_to = cluster.app(short).store.max_offset() + 1
        world.run_for_ms(5_000)
        assert app.ha.counters.truncations == 0, "the logs diverge below"
        app.settings.allow_truncation_to = end
        cluster.wait_in_sync(2, 30_000)
        assert app.store.max_offset() == cluster.app(short).store.max_offset() < both
        assert set(FIRST) <= {bytes(message.body) for message in cluster.run(cluster.read_all())}


def test_a_master_with_a_damaged_record_yields() -> None:
    with World(88) as world:
        cluster = filled(world)
        damaged = cluster.master
        cluster.app(damaged).store.integrity.damages[0] = Damage("00000000000000000000", 0, 200, "crc")
        world.run_until(lambda: any(node is not damaged for node in cluster.masters), 15_000)
        world.run_for_ms(10_000)
        assert cluster.master is not damaged, "it does not lead again before it is repaired"
