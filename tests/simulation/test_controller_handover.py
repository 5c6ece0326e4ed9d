"""The leadership of controllers moves: by an operator, at an orderly stop, or by a kill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqadmin.admin import AdminClient
from mqadmin.calls import leadership
from mqadmin.errors import AdminError, RequestRefused
from simulation.controllers.world import PEERS, ControllerWorld
from simulation.kernel.node import SimulatedClock
from tests.simulation.controllerscene import leader_of, whole_cluster

LIST = ";".join(PEERS.values())


@pytest.fixture
def cluster() -> Iterator[ControllerWorld]:
    with whole_cluster(31) as cluster:
        yield cluster


def transferred(cluster: ControllerWorld, transferee_id: str) -> leadership.Moved:
    async def ask() -> leadership.Moved:
        client = AdminClient(SimulatedClock(leader_of(cluster)))
        try:
            return await leadership.transfer(client, LIST, transferee_id)
        finally:
            await client.close()

    return cluster.world.run(ask())


def another_leads(cluster: ControllerWorld, former: str) -> bool:
    leader = cluster.leader()
    return leader is not None and leader.name != former


def test_an_operator_moves_the_leadership_to_a_named_controller(cluster: ControllerWorld) -> None:
    former = leader_of(cluster).name
    wanted = next(name for name in PEERS if name != former)
    moved = transferred(cluster, wanted)
    assert moved == ("group1", former, wanted, PEERS[wanted])
    cluster.world.run_until(lambda: cluster.leader() is not None, limit_ms=100)
    assert leader_of(cluster).name == wanted
    assert transferred(cluster, "").former_id == wanted


@pytest.mark.parametrize("transferee", ["n9", "the leader"])
def test_only_a_follower_can_take_over_the_leadership(cluster: ControllerWorld, transferee: str) -> None:
    leader = leader_of(cluster)
    with pytest.raises(RequestRefused, match="401.*no such member, or it leads"):
        transferred(cluster, leader.name if transferee == "the leader" else transferee)
    assert leader_of(cluster) is leader


def test_a_transferee_that_does_not_take_over_in_time_is_reported(cluster: ControllerWorld) -> None:
    leader = leader_of(cluster)
    target = next(node for node in cluster.controllers if node is not leader)
    target.kill()
    with pytest.raises(AdminError, match="418.*did not take over in time"):
        transferred(cluster, target.name)
    assert leader_of(cluster) is leader


def test_a_controller_that_is_stopped_has_a_successor_before_it_ends(cluster: ControllerWorld) -> None:
    leader = leader_of(cluster)
    began_ms = cluster.world.now_ms
    cluster.world.run(leader.stop())
    cluster.world.run_until(lambda: another_leads(cluster, leader.name), limit_ms=20)
    assert cluster.world.now_ms - began_ms < 150


def test_a_controller_that_is_killed_has_a_successor_within_a_second(cluster: ControllerWorld) -> None:
    leader = leader_of(cluster)
    leader.kill()
    cluster.world.run_until(lambda: another_leads(cluster, leader.name), limit_ms=500)
