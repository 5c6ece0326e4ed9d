"""A controller leader that no broker reaches, though all controllers reach each other."""

from __future__ import annotations

from controller.server import ControllerApp
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.unit.broker.brokerset import Cluster


def controllers_of(world: World) -> list[Node]:
    return [node for node in world.nodes.values() if isinstance(node.app, ControllerApp)]


def leading(world: World) -> Node:
    (leader,) = (
        n for n in controllers_of(world) if isinstance(n.app, ControllerApp) and n.app.node.is_active
    )
    return leader


def part(world: World, node: Node, others: list[Node]) -> None:
    for other in others:
        if other is not node:
            world.network.cut(node.host, other.host)


def test_it_gives_way_and_the_set_that_lost_its_master_gets_another() -> None:
    with World(401) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        leader, master = leading(world), cluster.master
        part(world, leader, cluster.brokers)
        part(world, master, [*cluster.brokers, *controllers_of(world)])
        slaves = [node for node in cluster.brokers if node is not master]
        world.run_until(lambda: any(cluster.app(node).membership.accepts_sends for node in slaves), 15_000)
        assert leading(world) is not leader


def test_a_leader_whose_master_lives_and_is_parted_from_it_alone_costs_no_mastership() -> None:
    with World(402) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        leader, master = leading(world), cluster.master
        epoch = cluster.app(master).ha.epoch
        part(world, leader, cluster.brokers)
        world.run_for_ms(60_000)
        assert cluster.master is master and cluster.app(master).ha.epoch == epoch
        assert leading(world) is not leader
        world.network.heal()
        world.run_for_ms(30_000)
        assert cluster.master is master and cluster.app(master).ha.epoch == epoch


def test_where_all_brokers_are_down_the_leadership_moves_ever_more_rarely() -> None:
    with World(403) as world:
        cluster = Cluster(world, 1, minInSyncReplicas=1)
        cluster.wait_in_sync(1)
        cluster.brokers[0].kill()
        term = leading(world).app.node.term  # type: ignore[union-attr]
        world.run_for_ms(600_000)
        assert leading(world).app.node.term - term < 25  # type: ignore[union-attr]
        cluster.start(cluster.brokers[0])
        cluster.wait_in_sync(1, 30_000)
