"""A started copy of a broker's store: the registered process keeps its role, and the copy is logged."""

from __future__ import annotations

import pytest

from broker.app import BrokerApp
from broker.role.membership import ReplicaRole
from controller.server import ControllerApp
from simulation.kernel.images import image_of, restore
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster
from tests.cluster.memoryloss import FIRST, SECOND, assert_all_there, filled

COPY_HOST = "10.0.2.9"
BOTH_MS = 15_000


def copy_of(cluster: Cluster, node: Node) -> Node:
    """A copy of the node's store, started at another address."""
    copy = cluster.world.node("copy", COPY_HOST)
    restore(copy.disk, image_of(node.disk))
    cluster.start(copy)
    return copy


def registered_at(cluster: Cluster, broker_id: int | None) -> set[str]:
    """The addresses of the broker id in the state of all controllers."""
    apps = [node.app for node in cluster.world.nodes.values() if isinstance(node.app, ControllerApp)]
    assert broker_id is not None
    return {app.state.replicas["broker-a"].by_id[broker_id].address for app in apps}


def duplicates(caplog: pytest.LogCaptureFixture, logger: str) -> list[dict[str, object]]:
    found = [record for record in caplog.records if record.getMessage() == "duplicate broker"]
    return [record.fields for record in found if record.name == logger]  # type: ignore[attr-defined]


@pytest.mark.parametrize("leads", [False, True])
def test_the_registered_broker_keeps_its_role_when_a_copy_of_its_store_starts(
    leads: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with World(210) as world:
        cluster = filled(world, 2)
        original = cluster.master if leads else cluster.slaves_by_id()[0]
        epoch = cluster.app(cluster.master).membership.master_epoch
        address = cluster.app(original).address
        copy = copy_of(cluster, original)
        cluster.run(cluster.send_all(SECOND))
        world.run_for_ms(BOTH_MS)
        app = copy.app
        assert isinstance(app, BrokerApp) and app.membership.role is ReplicaRole.NONE
        assert cluster.app(cluster.master).membership.master_epoch == epoch, "no master was deposed"
        assert registered_at(cluster, app.membership.broker_id) == {address}
        assert duplicates(caplog, "controller.livebrokers")[0]["other"] == app.address
        by_process = {each["address"]: each for each in duplicates(caplog, "broker.replicasmanager")}
        assert by_process.keys() == {address, app.address}
        assert by_process[address]["other"] == app.address and by_process[app.address]["other"] == address
        world.run(copy.stop())
        (other,) = (node for node in cluster.brokers if node is not original)
        other.kill()
        world.run_until(lambda: cluster.masters == [original], 20_000)
        cluster.start(other)
        cluster.wait_in_sync(2, 30_000)
        assert_all_there(cluster)


@pytest.mark.parametrize("leads", [False, True])
def test_a_broker_replaced_by_a_copy_of_its_store_registers_again_once_the_copy_stops(
    leads: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with World(211) as world:
        cluster = filled(world, 3)
        original = cluster.master if leads else cluster.slaves_by_id()[0]
        broker_id = cluster.app(original).membership.broker_id
        copied = image_of(original.disk)
        original.pause(30_000)
        world.run_for_ms(20_000)
        copy = world.node("copy", COPY_HOST)
        restore(copy.disk, copied)
        cluster.start(copy)
        world.run_until(lambda: isinstance(copy.app, BrokerApp) and copy.app.membership.registered, 9_000)
        world.run_for_ms(20_000)
        assert not cluster.app(original).membership.accepts_sends
        assert duplicates(caplog, "controller.livebrokers")
        cluster.run(cluster.send_all(SECOND))
        world.run(copy.stop())
        address = cluster.app(original).address
        world.run_until(lambda: registered_at(cluster, broker_id) == {address}, 30_000)
        cluster.wait_in_sync(3, 60_000)
        assert_all_there(cluster)


def test_a_store_that_moved_to_another_host_is_registered_once_its_former_host_is_gone() -> None:
    with World(212) as world:
        cluster = filled(world, 3)
        moved = cluster.slaves_by_id()[0]
        image = image_of(moved.disk)
        moved.kill()
        copy = world.node("copy", COPY_HOST)
        world.run_for_ms(2_100)
        restore(copy.disk, image)
        cluster.start(copy)
        world.run_until(lambda: isinstance(copy.app, BrokerApp) and copy.app.membership.in_sync, 20_000)
        assert {bytes(each.body) for each in cluster.run(cluster.read_all())} == set(FIRST)
