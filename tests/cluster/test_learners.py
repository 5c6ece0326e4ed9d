"""Learners, replicas that are never in the SyncStateSet, on virtual time."""

from __future__ import annotations

import orjson

from broker.role.membership import ReplicaRole
from controller.state import SyncState
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.controller import ElectMasterHeader
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster, leading_state
from tests.support.pullbench import pull


def with_learner(world: World, brokers: int) -> tuple[Cluster, Node]:
    cluster = Cluster(world, brokers, slaveReadEnable=True)
    cluster.start_up()
    cluster.run(cluster.send_all([b"first"]))
    learner = world.node("learner", "10.0.2.9")
    cluster.start(learner, asyncLearner=True)
    wait_caught_up(cluster, learner)
    return cluster, learner


def end(cluster: Cluster, node: Node) -> tuple[int, int]:
    store = cluster.app(node).store
    return store.max_offset(), store.confirm_offset()


def wait_caught_up(cluster: Cluster, node: Node) -> None:
    def caught_up() -> bool:
        started = node.app is not None and cluster.app(node).membership.role is ReplicaRole.SLAVE
        return started and bool(cluster.masters) and end(cluster, node) == end(cluster, cluster.master)

    cluster.world.run_until(caught_up, 30_000)


def state(cluster: Cluster) -> SyncState:
    return leading_state(cluster.world).sync_states["broker-a"]


def pulled(cluster: Cluster, node: Node) -> int:
    """The number of queues of the topic in which a reader finds messages at this broker."""
    asked = [
        cluster.run(cluster.ask(f"{node.host}:10911", RequestCode.PULL_MESSAGE, pull(queueId=queue).ext))
        for queue in range(4)
    ]
    return sum(reply.code == ResponseCode.SUCCESS for reply in asked)


def test_a_learner_serves_confirmed_messages_only() -> None:
    with World(61) as world:
        cluster, learner = with_learner(world, 2)
        cluster.run(cluster.send_all([b"read"] * 8))
        wait_caught_up(cluster, learner)
        world.run_for_ms(500)
        assert pulled(cluster, learner) == pulled(cluster, cluster.master) > 0
        slave = cluster.slaves[0]
        before = end(cluster, learner)[1]
        world.network.cut(cluster.master.host, slave.host)
        world.nodes["client"].spawn(cluster.send_all([b"unconfirmed"]))
        world.run_for_ms(900)
        received, confirmed = end(cluster, learner)
        assert received > confirmed == before, "it holds the message, and serves it to no reader"
        assert cluster.app(learner).store.dispatched_offset() <= before


def test_a_learner_started_first_waits_for_a_master_and_follows_it() -> None:
    with World(62) as world:
        cluster = Cluster(world, 0, minInSyncReplicas=1)
        learner = world.node("learner", "10.0.2.9")
        cluster.start(learner, asyncLearner=True)
        world.run_for_ms(15_000)
        assert (
            cluster.app(learner).membership.role is ReplicaRole.NONE
            and cluster.app(learner).membership.registered
        )
        cluster.brokers.append(world.node("broker-0", "10.0.2.1"))
        cluster.start(cluster.brokers[0])
        cluster.wait_in_sync(1)
        cluster.create_topic()
        cluster.run(cluster.send_all([b"taught"]))
        wait_caught_up(cluster, learner)
        assert state(cluster).members == {cluster.app(cluster.brokers[0]).membership.broker_id}


def test_a_learner_keeps_its_log_and_does_not_lead_when_all_members_are_gone() -> None:
    with World(63) as world:
        cluster, learner = with_learner(world, 2)
        cluster.run(cluster.send_all([b"kept"] * 5))
        wait_caught_up(cluster, learner)
        held, broker_id = end(cluster, learner), cluster.app(learner).membership.broker_id
        for node in cluster.brokers:
            node.kill()
        assert broker_id is not None
        header = ElectMasterHeader("broker-a", "DefaultCluster", broker_id, True)
        world.run_for_ms(15_000)
        reply = cluster.run(cluster.ask("10.0.1.1:9878", RequestCode.CONTROLLER_GET_METADATA_INFO))
        elect = cluster.ask(reply.ext["controllerLeaderAddress"], RequestCode.CONTROLLER_ELECT_MASTER, header)
        assert cluster.run(elect).code != ResponseCode.SUCCESS
        world.run_for_ms(5_000)
        assert cluster.app(learner).membership.role is ReplicaRole.SLAVE and end(cluster, learner) == held
        assert state(cluster).master_id is None
        for node in cluster.brokers:
            cluster.start(node)
        cluster.wait_in_sync(2, 30_000)
        cluster.run(cluster.send_all([b"after"]))
        wait_caught_up(cluster, learner)


def test_a_member_becomes_a_learner_and_a_learner_a_member_by_a_restart() -> None:
    with World(64) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        node = cluster.slaves[0]
        broker_id = cluster.app(node).membership.broker_id
        world.run(node.stop())
        cluster.start(node, asyncLearner=True)
        cluster.wait_in_sync(2, 20_000)
        cluster.run(cluster.send_all([b"learned"]))
        wait_caught_up(cluster, node)
        assert broker_id not in state(cluster).members | state(cluster).eligible
        world.run(node.stop())
        cluster.start(node)
        cluster.wait_in_sync(3, 20_000)
        assert cluster.app(node).membership.broker_id == broker_id


def test_ha_status_distinguishes_a_learner_from_a_slave() -> None:
    with World(65) as world:
        cluster, _ = with_learner(world, 2)
        reply = cluster.run(
            cluster.ask(cluster.app(cluster.master).address, RequestCode.GET_BROKER_HA_STATUS)
        )
        links = orjson.loads(reply.body)["haConnectionInfo"]
        assert sorted((link["inSync"], link.get("learner")) for link in links) == [
            (False, True),
            (True, None),
        ]
