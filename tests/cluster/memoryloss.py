"""Sets with acknowledged messages FIRST and SECOND, for tests of kills, power losses and old disks."""

from __future__ import annotations

import pytest

from controller.server import ControllerApp
from simulation.kernel.world import NotReached, World
from tests.cluster.brokerset import Cluster

FIRST = [f"first {number}".encode() for number in range(20)]
SECOND = [f"second {number}".encode() for number in range(20)]


def filled(world: World, brokers: int = 3, **settings: object) -> Cluster:
    cluster = Cluster(world, brokers, **settings)
    cluster.start_up()
    cluster.run(cluster.send_all(FIRST))
    world.run_for_ms(3_000)
    return cluster


def members(cluster: Cluster) -> frozenset[int]:
    """The SyncStateSet of the controller with the newest state."""
    apps = [node.app for node in cluster.world.nodes.values() if isinstance(node.app, ControllerApp)]
    states = [app.state.sync_states["broker-a"] for app in apps if "broker-a" in app.state.sync_states]
    return max(states, key=lambda state: (state.master_epoch, state.set_epoch)).members


def assert_all_there(cluster: Cluster) -> None:
    found = [bytes(message.body) for message in cluster.run(cluster.read_all())]
    assert sorted(set(found)) == sorted(FIRST + SECOND)


def no_master_for(world: World, cluster: Cluster, ms: int) -> None:
    with pytest.raises(NotReached):
        world.run_until(lambda: bool(cluster.masters), ms)
