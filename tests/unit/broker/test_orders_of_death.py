"""Contract C in every order of death and return: no acknowledged message is lost while fewer than minInSyncReplicas of its
holders lose memory; and nothing stays without a master that need not."""

from __future__ import annotations

import errno
import os

import pytest

from broker.app import BrokerApp
from controller.server import ControllerApp
from messagestore.scrub.soundness import Damage
from simulation.kernel.node import Node
from simulation.kernel.world import NotReached, World
from tests.unit.broker.brokerset import CONTROLLERS, Cluster

FIRST = [f"first {number}".encode() for number in range(20)]
SECOND = [f"second {number}".encode() for number in range(20)]
LONG_MS = 15_000


def filled(world: World, brokers: int = 3, **settings: object) -> Cluster:
    cluster = Cluster(world, brokers, **settings)
    cluster.start_up()
    cluster.run(cluster.send_all(FIRST))
    world.run_for_ms(3_000)
    return cluster


def members(cluster: Cluster) -> frozenset[int]:
    """As the newest controller applied it."""
    apps = [node.app for node in cluster.world.nodes.values() if isinstance(node.app, ControllerApp)]
    states = [app.state.sync_states["broker-a"] for app in apps if "broker-a" in app.state.sync_states]
    return max(states, key=lambda state: (state.master_epoch, state.set_epoch)).members


def by_id(cluster: Cluster) -> list[Node]:
    """The slaves, in the order in which equals are elected."""
    slaves = [node for node in cluster.brokers if node is not cluster.master]
    return sorted(slaves, key=lambda node: cluster.app(node).membership.broker_id or 0)


def assert_all_there(cluster: Cluster) -> None:
    found = [bytes(message.body) for message in cluster.run(cluster.read_all())]
    assert sorted(set(found)) == sorted(FIRST + SECOND)


def leads(controller: Node) -> bool:
    return isinstance(controller.app, ControllerApp) and controller.app.node.is_active


def sent_without_sync(cluster: Cluster, *forgetful: Node) -> None:
    """Acknowledged, in the memory of every member, on no disk of those that are to forget it."""
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


def no_master_for(world: World, cluster: Cluster, ms: int) -> None:
    with pytest.raises(NotReached):
        world.run_until(lambda: bool(cluster.masters), ms)


def test_the_last_replica_standing_loses_its_memory_and_the_others_hold_everything() -> None:
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
def test_one_member_loses_its_memory_and_the_other_is_only_killed(order: tuple[str, ...]) -> None:
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


def test_a_heartbeat_of_before_the_loss_elects_nobody_at_a_controller_that_did_not_hear_of_the_restart() -> (
    None
):
    with World(91) as world:
        cluster = filled(world, 2)
        killed, (forgetful,) = cluster.master, by_id(cluster)
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
def test_what_a_failed_sync_left_to_memory_goes_with_the_machine_though_a_later_sync_succeeded(
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


def test_the_master_and_the_slave_that_is_elected_next_die_within_a_moment() -> None:
    with World(83) as world:
        cluster = filled(world)
        cluster.run(cluster.send_all(SECOND))
        master, (elected, survivor) = cluster.master, by_id(cluster)
        master.kill()
        world.run_for_ms(60)
        elected.kill()
        cluster.start(master)
        world.run_until(lambda: bool(cluster.masters), LONG_MS)
        assert cluster.master in (survivor, master)
        cluster.wait_in_sync(2)
        assert_all_there(cluster)


def test_without_a_minimum_too_a_broker_that_dies_before_it_acts_takes_nothing_with_it() -> None:
    with World(84) as world:
        cluster = filled(world, minInSyncReplicas=1)
        cluster.run(cluster.send_all(SECOND))
        master, (elected, survivor) = cluster.master, by_id(cluster)
        elected.pause(60_000)
        master.kill()
        world.run_for_ms(200)
        elected.kill()
        world.run_until(lambda: bool(cluster.masters), LONG_MS)
        assert cluster.master is survivor
        world.run_for_ms(500)  # the name server hears of it
        assert_all_there(cluster)


def test_what_only_the_master_holds_is_not_read_below_the_minimum() -> None:
    with World(85) as world:
        cluster = filled(world)
        cluster.run(cluster.send_all(SECOND))
        world.run_for_ms(1_000)
        master = cluster.master
        for node in by_id(cluster):
            world.network.cut(node.host, master.host)
        task = world.loop.create_task(cluster.send_all([b"for nobody"]))
        world.run_until(lambda: len(members(cluster)) == 1, 40_000)
        world.run_for_ms(2_000)
        task.cancel()
        app = cluster.app(master)
        assert app.store.max_offset() > app.store.confirm_offset(), "it is stored"
        assert_all_there(cluster)


def test_a_slave_stays_out_where_its_master_lacks_what_was_confirmed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Beyond the contract: two of two lose memory, and an operator has the shorter one lead."""
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


def test_an_operators_word_lets_a_replica_give_up_what_was_confirmed() -> None:
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
        assert app.ha.counters.truncations == 0, "the logs part below"
        app.settings.allow_truncation_to = end
        cluster.wait_in_sync(2, 30_000)
        assert app.store.max_offset() == cluster.app(short).store.max_offset() < both
        assert set(FIRST) <= {bytes(message.body) for message in cluster.run(cluster.read_all())}


def test_a_master_with_a_damaged_record_yields() -> None:
    with World(88) as world:
        cluster = filled(world)
        rotten = cluster.master
        cluster.app(rotten).store.integrity.damages[0] = Damage("00000000000000000000", 0, 200, "crc")
        world.run_until(lambda: any(node is not rotten for node in cluster.masters), 15_000)
        world.run_for_ms(10_000)
        assert cluster.master is not rotten, "nor does it come back while it is not repaired"
