"""Elections by three controllers over scripted brokers. The world's checker checks every applied entry."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import pytest

from simulation.controllers.scriptedbroker import BROKER_NAME
from simulation.controllers.world import CONTROLLER_HOSTS, ControllerWorld
from simulation.kernel.node import Node
from tests.simulation.controllerscene import (
    elect,
    leader_of,
    master_of,
    recorded,
    survive_faults,
    whole_cluster,
)

HEARTBEAT_TIMEOUT_MS = 10_000


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[ControllerWorld]:
    """Three controllers, three brokers, all in the SyncStateSet."""
    with whole_cluster(crc32(request.node.name.encode())) as cluster:
        yield cluster


def test_the_set_forms_within_a_few_seconds_of_the_first_start(cluster: ControllerWorld) -> None:
    assert cluster.world.now_ms < 11_000, "a request for an inactive broker waits up to six seconds"
    assert recorded(cluster).master_epoch == 1


def test_a_killed_master_is_replaced_and_announced_at_once(cluster: ControllerWorld) -> None:
    master = master_of(cluster)
    others = [node for node in cluster.brokers if node is not master]
    notified = {node.name: cluster.broker(node).notified for node in others}
    master.kill()
    killed_ms = cluster.world.now_ms
    cluster.world.run_until(lambda: recorded(cluster).master_epoch == 2, limit_ms=1_000)
    cluster.world.run_until(
        lambda: all(cluster.broker(node).notified > notified[node.name] for node in others), limit_ms=1_000
    )
    assert cluster.world.now_ms - killed_ms < 100
    assert all(cluster.broker(node).epoch == 2 for node in others)


def test_a_paused_master_is_replaced_after_its_heartbeat_lifetime(cluster: ControllerWorld) -> None:
    master_of(cluster).pause(30_000)
    paused_ms = cluster.world.now_ms
    cluster.world.run_until(lambda: recorded(cluster).master_epoch == 2, limit_ms=20_000)
    assert 8_000 <= cluster.world.now_ms - paused_ms <= HEARTBEAT_TIMEOUT_MS + 500
    cluster.world.run_until(cluster.whole, limit_ms=60_000)


def test_leader_and_master_killed_together_are_both_replaced(cluster: ControllerWorld) -> None:
    master, leader = master_of(cluster), leader_of(cluster)
    master.kill()
    leader.kill()

    def replaced() -> bool:
        """Perhaps after the master was removed: a candidate must first send a heartbeat to the new leader."""
        return recorded(cluster).master_epoch > 1 and recorded(cluster).master_id is not None

    cluster.world.run_until(replaced, limit_ms=4_000)


def test_a_restart_of_all_controllers_deposes_no_master_with_late_heartbeats(
    cluster: ControllerWorld,
) -> None:
    master = master_of(cluster)
    for node in cluster.controllers:
        node.kill()
    for host in CONTROLLER_HOSTS:
        cluster.world.network.cut(master.host, host)
    for node in cluster.controllers:
        cluster.start_controller(node)
    cluster.world.run_for_ms(8_000)
    for host in CONTROLLER_HOSTS:
        cluster.world.network.heal(master.host, host)
    cluster.world.run_for_ms(20_000)
    cluster.world.run_until(cluster.whole, limit_ms=10_000)
    assert recorded(cluster).master_epoch == 1


def test_a_restart_of_all_controllers_replaces_a_master_that_stays_silent(
    cluster: ControllerWorld,
) -> None:
    master = master_of(cluster)
    for node in [*cluster.controllers, master]:
        node.kill()
    for node in cluster.controllers:
        cluster.start_controller(node)
    cluster.world.run_until(
        lambda: recorded(cluster).master_epoch == 2, limit_ms=HEARTBEAT_TIMEOUT_MS + 3_000
    )
    assert recorded(cluster).master_id is not None


def test_a_master_that_restarts_quickly_leads_only_with_a_new_epoch(cluster: ControllerWorld) -> None:
    others = [node for node in cluster.brokers if node is not master_of(cluster)]
    for node in others:
        node.kill()
    cluster.world.run_until(lambda: len(recorded(cluster).members) == 1, limit_ms=20_000)
    master = master_of(cluster)
    epoch = recorded(cluster).master_epoch
    master.kill()
    cluster.start_broker(master)
    cluster.world.run_until(lambda: cluster.master() is master, limit_ms=5_000)
    assert recorded(cluster).master_epoch == epoch + 2, "removed, then elected again"


def test_a_master_whose_machine_restarts_unnoticed_leads_only_with_a_new_epoch(
    cluster: ControllerWorld,
) -> None:
    master = master_of(cluster)
    master.kill(power_cut=True)
    cluster.start_broker(master)
    cluster.world.run_until(lambda: recorded(cluster).master_epoch > 1, limit_ms=3_000)
    cluster.world.run_until(cluster.whole, limit_ms=30_000)
    assert 1 in cluster.checker.masters(BROKER_NAME)


def test_without_a_candidate_one_epoch_is_used_and_any_returning_member_leads(
    cluster: ControllerWorld,
) -> None:
    for node in cluster.brokers:
        node.kill()
    cluster.world.run_for_ms(60_000)
    before = recorded(cluster).master_epoch
    assert recorded(cluster).master_id is None
    assert recorded(cluster).members
    members = recorded(cluster).members
    cluster.world.run_for_ms(60_000)
    assert recorded(cluster).master_epoch == before
    for node in cluster.brokers:
        cluster.start_broker(node)
    cluster.world.run_until(cluster.whole, limit_ms=30_000)
    assert cluster.checker.masters(BROKER_NAME)[before + 1] in members


def all_down_but_one_that_was_emptied(cluster: ControllerWorld, *, controllers_too: bool) -> Node:
    """The leading controller, or all, and then all brokers die: the set stays. One broker comes back empty."""
    emptied = next(node for node in cluster.brokers if node is not master_of(cluster))
    cluster.world.run_for_ms(10_000)  # controllers have saved the reported states
    cluster.world.run_until(cluster.whole, limit_ms=30_000)
    dying = cluster.controllers if controllers_too else [leader_of(cluster)]
    for node in [*dying, *cluster.brokers]:
        node.kill()
    cluster.world.run_for_ms(20_000)
    for node in dying:
        cluster.start_controller(node)
    cluster.start_broker(emptied)
    cluster.world.run_until(lambda: emptied.app is not None, limit_ms=100)
    cluster.broker(emptied).emptied = True
    cluster.world.run_for_ms(40_000)
    assert (recorded(cluster).master_id, recorded(cluster).members) == (None, {1, 2, 3})
    return emptied


@pytest.mark.parametrize("controllers_too", [False, True])
def test_an_emptied_member_with_its_old_id_waits_for_the_others(
    cluster: ControllerWorld, controllers_too: bool
) -> None:
    emptied = all_down_but_one_that_was_emptied(cluster, controllers_too=controllers_too)
    for node in cluster.brokers:
        if node is not emptied:
            cluster.start_broker(node)
    cluster.world.run_until(lambda: recorded(cluster).master_id is not None, limit_ms=10_000)
    assert recorded(cluster).master_id != cluster.broker(emptied).broker_id


def test_an_operator_elects_an_emptied_member_when_the_others_stay_away(
    cluster: ControllerWorld,
) -> None:
    emptied_id = cluster.broker(all_down_but_one_that_was_emptied(cluster, controllers_too=True)).broker_id
    assert emptied_id is not None
    assert elect(cluster, emptied_id, designate=False).code == 2012
    assert elect(cluster, emptied_id, designate=True).code == 0
    assert recorded(cluster).master_id == emptied_id


def test_only_an_operator_moves_the_mastership(cluster: ControllerWorld) -> None:
    master_id = recorded(cluster).master_id
    assert master_id is not None
    for nobody in (-1, 99):
        assert elect(cluster, nobody, designate=True).code == 2012
    assert elect(cluster, -1, designate=False).code == 2011
    assert recorded(cluster).master_epoch == 1
    other = next(iter(recorded(cluster).members - {master_id}))
    assert elect(cluster, other, designate=False).code == 2011
    reply = elect(cluster, other, designate=True)
    assert (reply.code, reply.ext["masterBrokerId"], reply.ext["masterEpoch"]) == (0, str(other), "2")
    assert elect(cluster, other, designate=True).code == 2011
    cluster.world.run_until(cluster.whole, limit_ms=10_000)


def test_a_leader_cut_off_from_the_other_controllers_answers_nothing(cluster: ControllerWorld) -> None:
    leader = leader_of(cluster)
    app = cluster.app(leader)
    others = [node for node in cluster.controllers if node is not leader]
    for other in others:
        cluster.world.network.cut(leader.host, other.host)
    cluster.world.run_until(lambda: cluster.leader() in others, limit_ms=5_000)
    cluster.world.run_until(lambda: not app.node.is_active, limit_ms=5_000)
    for other in others:
        cluster.world.network.heal(leader.host, other.host)
    master_of(cluster).kill()
    cluster.world.run_until(lambda: recorded(cluster).master_epoch == 2, limit_ms=5_000)


@pytest.mark.parametrize("seed", range(1, 7))
def test_one_master_per_epoch_and_one_history_under_faults(seed: int) -> None:
    with whole_cluster(seed) as cluster:
        survive_faults(cluster)
        assert cluster.checker.elections >= 1
        states = [cluster.app(node).state for node in cluster.controllers if node.running]
        assert len(states) == len(CONTROLLER_HOSTS)


def test_the_same_seed_gives_the_same_trace() -> None:
    digests = []
    for _ in range(2):
        with whole_cluster(77) as cluster:
            cluster.world.run(cluster.misbehave(10_000), limit_ms=100_000)
            digests.append(cluster.world.trace.digest)
    assert digests[0] == digests[1]
