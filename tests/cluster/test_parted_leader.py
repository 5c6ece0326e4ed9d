"""A controller leader that no broker reaches, although all controllers reach each other."""

from __future__ import annotations

from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster, controllers_of, cut_off, leading_controller


def test_a_partitioned_controller_leader_gives_way_and_the_set_gets_a_master() -> None:
    with World(401) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        leader, master = leading_controller(world), cluster.master
        cut_off(world, leader, cluster.brokers)
        cut_off(world, master, [*cluster.brokers, *controllers_of(world)])
        slaves = [node for node in cluster.brokers if node is not master]
        world.run_until(lambda: any(cluster.app(node).membership.accepts_sends for node in slaves), 15_000)
        assert leading_controller(world) is not leader


def test_a_controller_leader_cut_off_from_brokers_is_replaced_without_a_new_epoch() -> None:
    with World(402) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        leader, master = leading_controller(world), cluster.master
        epoch = cluster.app(master).ha.epoch
        cut_off(world, leader, cluster.brokers)
        world.run_for_ms(60_000)
        assert cluster.master is master and cluster.app(master).ha.epoch == epoch
        assert leading_controller(world) is not leader
        world.network.heal()
        world.run_for_ms(30_000)
        assert cluster.master is master and cluster.app(master).ha.epoch == epoch


def test_controller_leadership_moves_at_a_bounded_rate_while_all_brokers_are_down() -> None:
    with World(403) as world:
        cluster = Cluster(world, 1, minInSyncReplicas=1)
        cluster.wait_in_sync(1)
        cluster.brokers[0].kill()
        term = leading_controller(world).app.node.term  # type: ignore[union-attr]
        world.run_for_ms(600_000)
        assert leading_controller(world).app.node.term - term < 25  # type: ignore[union-attr]
        cluster.start(cluster.brokers[0])
        cluster.wait_in_sync(1, 30_000)
