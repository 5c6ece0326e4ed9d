"""Brokers that an operator removes from the controllers, on virtual time."""

from __future__ import annotations

import pytest

from broker.role.membership import ReplicaRole
from remoting.codes import RequestCode
from remoting.headers.controller import CleanBrokerDataHeader
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster, leading_state


def forget(cluster: Cluster, ids: str | None) -> int:
    header = CleanBrokerDataHeader("broker-a", "DefaultCluster", ids, True)
    reply = cluster.run(cluster.ask_leader(RequestCode.CLEAN_BROKER_DATA, header))
    return int(reply.code)


def known_set(cluster: Cluster) -> frozenset[int]:
    """The SyncStateSet in the state of the leading controller."""
    return leading_state(cluster.world).sync_states["broker-a"].members


@pytest.mark.parametrize("lives", [True, False])
def test_a_broker_removed_from_the_controllers_returns_as_slave_under_its_id(lives: bool) -> None:
    with World(71) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        slave = cluster.slaves[0]
        broker_id = cluster.app(slave).membership.broker_id
        if not lives:
            slave.kill()
            cluster.wait_in_sync(2)
        assert forget(cluster, str(broker_id)) == 0
        assert broker_id not in known_set(cluster)
        if not lives:
            cluster.start(slave)
        world.run_until(lambda: broker_id in known_set(cluster), 20_000)
        cluster.wait_in_sync(3)
        membership = cluster.app(slave).membership
        assert (membership.role, membership.broker_id) == (ReplicaRole.SLAVE, broker_id)
        assert membership.registered
        cluster.master.kill()
        cluster.world.run_until(lambda: cluster.in_sync(2), 20_000)


def test_a_set_removed_from_the_controllers_is_not_recreated_by_its_brokers() -> None:
    with World(72) as world:
        cluster = Cluster(world, 2)
        cluster.start_up()
        assert forget(cluster, None) == 0
        world.run_for_ms(20_000)
        assert not any(cluster.app(node).membership.registered for node in cluster.brokers)


def test_a_store_from_before_a_set_was_recreated_does_not_join_it() -> None:
    """Both logs have epoch 1 from 0 on and records of equal sizes: their contents do not distinguish them."""
    with World(81) as world:
        cluster = Cluster(world, 2, minInSyncReplicas=1)
        cluster.start_up()
        cluster.run(cluster.send_all([b"of before %02d" % number for number in range(10)]))
        master, other = cluster.master, cluster.slaves[0]
        world.run_for_ms(3_000)
        for node in cluster.brokers:
            node.kill()
        assert forget(cluster, None) == 0
        master.disk.wipe()
        cluster.start(master)
        cluster.wait_in_sync(1)
        cluster.create_topic()
        cluster.run(cluster.send_all([b"since then %d" % number for number in range(10, 40)]))
        cluster.start(other)
        world.run_for_ms(15_000)
        assert cluster.in_sync(1) and not cluster.app(other).membership.registered
