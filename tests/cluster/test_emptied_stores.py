"""Brokers whose stores were lost, on virtual time: none of them leads without the confirmed log."""

from __future__ import annotations

import pytest

from broker.app import BrokerApp
from broker.role.identityfiles import MARK_FILE
from epochfile.format import encode as encode_epochs
from epochfile.history import EpochHistory
from ha.errors import EpochFileForeign
from messagestore.errors import LogMissing
from mqclient.producer import SendStatus
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster, leading_controller

BODIES = [f"message {number}".encode() for number in range(30)]


def filled(world: World, brokers: int = 3) -> Cluster:
    """A set in which every message is on every broker and confirmed, also in the checkpoints."""
    cluster = Cluster(world, brokers)
    cluster.start_up()
    results = cluster.run(cluster.send_all(BODIES))
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    world.run_for_ms(3_000)
    return cluster


def id_of(cluster: Cluster, node: Node) -> int | None:
    return cluster.app(node).membership.broker_id


def kill_all_at_once(cluster: Cluster) -> None:
    """Kills the leading controller too, so that no dead broker is elected and the set keeps its members."""
    for node in (leading_controller(cluster.world), *cluster.brokers):
        node.kill()


def keep_only(node: Node, *names: str) -> None:
    for path in sorted(node.disk.entries):
        if path not in names:
            node.disk.wipe(path)


def wait_joined(cluster: Cluster, count: int) -> None:
    """Waits until `count` running brokers are in the set; old ids may be in it, too."""

    def joined() -> bool:
        ids = {id_of(cluster, node) for node in cluster.brokers if isinstance(node.app, BrokerApp)}
        return any(len(cluster.app(node).ha.counted_members() & ids) == count for node in cluster.masters)

    cluster.world.run_until(joined, 40_000)


def everything_is_read(cluster: Cluster) -> None:
    assert {message.body for message in cluster.run(cluster.read_all())} == set(BODIES)
    assert len({cluster.app(node).store.max_offset() for node in cluster.brokers}) == 1


def test_a_member_with_only_its_identity_file_left_is_not_elected_and_gets_a_new_id() -> None:
    with World(41) as world:
        cluster = filled(world)
        emptied, kept = cluster.slaves[0], list(cluster.brokers)
        kept.remove(emptied)
        old_id = id_of(cluster, emptied)
        kill_all_at_once(cluster)
        keep_only(emptied, "brokerIdentity")
        cluster.start(emptied)
        world.run_for_ms(30_000)
        assert cluster.masters == [], "the only running broker has an empty store"
        for node in kept:
            cluster.start(node)
        wait_joined(cluster, 3)
        assert cluster.master in kept
        assert id_of(cluster, emptied) == 4 != old_id
        everything_is_read(cluster)


def test_a_member_whose_log_folder_is_gone_refuses_to_start_until_its_store_is_emptied() -> None:
    with World(42) as world:
        cluster = filled(world)
        damaged = cluster.slaves[0]
        damaged.kill()
        damaged.disk.wipe("commitlog/")
        cluster.start(damaged)
        world.run_until(lambda: damaged.failure is not None, 1_000)
        assert isinstance(damaged.failure, LogMissing)
        damaged.disk.wipe()
        cluster.start(damaged)
        wait_joined(cluster, 3)
        assert id_of(cluster, damaged) == 4
        everything_is_read(cluster)


def test_a_member_that_lost_log_and_checkpoint_joins_under_a_new_id() -> None:
    with World(43) as world:
        cluster = filled(world)
        lost = cluster.master
        lost.kill()
        wait_joined(cluster, 2)  # a second epoch, which begins within the log
        cluster.run(cluster.send_all([b"of epoch 2"]))
        cluster.start(lost)
        wait_joined(cluster, 3)
        world.run_for_ms(2_000)
        lost.kill()
        lost.disk.wipe("commitlog/")
        lost.disk.wipe("checkpoint")
        for _ in range(3):  # the epochs of the lost log are discarded, so the new id stays
            cluster.start(lost)
            wait_joined(cluster, 3)
            assert id_of(cluster, lost) == 4
            lost.kill()


@pytest.mark.parametrize("messages", [0, 1])
def test_brokers_that_are_killed_before_or_after_the_first_message_keep_their_ids(messages: int) -> None:
    with World(44) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        cluster.run(cluster.send_all(BODIES[:messages]))
        ids = [id_of(cluster, node) for node in cluster.brokers]
        for _ in range(2):
            for node in cluster.brokers:
                node.kill()
            for node in cluster.brokers:
                cluster.start(node)
            wait_joined(cluster, 3)
        assert [id_of(cluster, node) for node in cluster.brokers] == ids
        assert all(node.disk.content(MARK_FILE) for node in cluster.brokers)


def test_after_a_power_loss_before_the_first_sync_only_an_administrator_elects_a_master(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Contract C: no broker leads by itself with an empty log after messages were confirmed."""
    with World(105) as world:
        cluster = Cluster(world, 3, flushIntervalCommitLog=5_000)
        cluster.start_up()
        cluster.run(cluster.send_all(BODIES[:10]))
        world.run_for_ms(1_000)
        for node in cluster.brokers:
            node.disk.share_kept = 0.0
            node.kill(power_cut=True)
        for node in cluster.brokers:
            cluster.start(node)
        world.run_for_ms(20_000)
        assert cluster.masters == []
        assert "the logs of all members are empty" in caplog.text
        assert {cluster.app(node).store.max_offset() for node in cluster.brokers} == {0}
        best = cluster.brokers[0]
        cluster.run(cluster.designate(id_of(cluster, best)))
        cluster.wait_in_sync(3, 10_000)
        assert cluster.masters == [best]
        cluster.run(cluster.send_all(BODIES))
        everything_is_read(cluster)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_broker_that_refuses_its_epoch_file_leaves_the_checkpoint_as_it_is(*, damaged: bool) -> None:
    with World(47) as world:
        cluster = filled(world)
        slave = cluster.slaves[0]
        world.run(slave.stop())
        if damaged:
            slave.disk.flip_bit("checkpoint", 36, 4)
        slave.disk.put("epochFileCheckpoint", encode_epochs(EpochHistory([(1, 0), (2, 7)])))
        before = slave.disk.content("checkpoint")
        cluster.start(slave)
        world.run_for_ms(3_000)
        assert isinstance(slave.failure, EpochFileForeign)
        assert slave.disk.content("checkpoint") == before
