"""What a broker may say to users while another broker may lead, or while it may not have the newest users."""

from __future__ import annotations

import asyncio
import itertools
from unittest.mock import patch

import pytest

from broker.app import BrokerApp
from broker.switchover.handover import HandOverRequests
from remoting.bodies.access import UserInfo
from remoting.codes import RequestCode as Code
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.access import UserHeader
from remoting.headers.admin import TopicHeader
from remoting.headers.offsets import GetMaxOffsetHeader, QueryConsumerOffsetHeader
from remoting.headers.pull import SYS_FLAG_SUBSCRIPTION, SYS_FLAG_SUSPEND, PullMessageHeader
from remoting.peer import Peer
from remoting.signing import Credentials
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.brokerset import CONTROLLERS, cut_off
from tests.cluster.guardedset import ADMIN, ALICE, GuardedCluster

BUSY = ResponseCode.SYSTEM_BUSY


def asked(cluster: GuardedCluster, node: Node, user: Credentials = ALICE) -> RemotingCommand:
    """The answer to a user who asks this broker for a topic's settings."""
    address, header = cluster.app(node).address, TopicHeader("orders")
    reply: RemotingCommand = cluster.run(
        cluster.ask(address, Code.GET_TOPIC_CONFIG, header, credentials=user)
    )
    return reply


def status(cluster: GuardedCluster, node: Node, status: str) -> int:
    """The code of the answer to an administrator who enables or disables the user at this broker."""
    body = UserInfo("alice", user_status=status).encode()
    address, header = cluster.app(node).address, UserHeader("alice")
    code: int = cluster.run(cluster.ask(address, Code.AUTH_UPDATE_USER, header, body)).code
    return code


def strangers_of(world: World, *nodes: Node) -> list[Node]:
    """All servers but these."""
    return [node for node in world.nodes.values() if node not in nodes and node.name != "client"]


def leading(cluster: GuardedCluster, among: list[Node]) -> Node:
    """Wait until one of these brokers leads, and the others follow it."""

    def leader() -> list[Node]:
        apps = [(node, node.app) for node in among if isinstance(node.app, BrokerApp)]
        return [
            node
            for node, app in apps
            if app.membership.accepts_sends and app.ha.in_sync_count() == len(among)
        ]

    cluster.world.run_until(lambda: bool(leader()), 30_000)
    return leader()[0]


def test_a_broker_that_may_not_know_a_user_does_not_say_that_there_is_none() -> None:
    with World(930) as world:
        cluster = GuardedCluster(world, 3)
        cluster.start_up()
        slave, other = cluster.slaves_by_id()
        cut_off(world, slave, strangers_of(world))
        cluster.wait_in_sync(2, 30_000)
        cluster.create_user(ALICE)
        assert asked(cluster, other).code == ResponseCode.NO_PERMISSION
        assert asked(cluster, slave).code == BUSY
        assert asked(cluster, slave, Credentials("alice", "wrong")).code == BUSY
        assert asked(cluster, slave, ADMIN).code == BUSY
        world.network.heal()
        world.run_for_ms(5_000)
        assert asked(cluster, slave).code == ResponseCode.NO_PERMISSION


def test_a_revocation_is_carried_out_each_time_it_is_requested() -> None:
    with World(931) as world:
        cluster = GuardedCluster(world, 2)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:orders", ["Get"]))
        [slave] = cluster.slaves
        assert status(cluster, slave, "disable") == 0
        assert status(cluster, cluster.master, "enable") == 0
        assert asked(cluster, cluster.master).code == ResponseCode.SUCCESS
        assert status(cluster, cluster.master, "disable") == 0
        assert asked(cluster, cluster.master).remark == "User:alice is disabled."


def test_a_slave_with_an_old_copy_does_not_answer_that_a_revocation_is_done() -> None:
    with World(932) as world:
        cluster = GuardedCluster(world, 2, minInSyncReplicas=1)
        cluster.start_up()
        cluster.create_user(ALICE)
        [slave] = cluster.slaves
        assert status(cluster, cluster.master, "disable") == 0
        cut_off(world, slave, strangers_of(world))
        world.run_until(lambda: len(cluster.app(cluster.master).ha.counted_members()) == 1, 30_000)
        assert status(cluster, cluster.master, "enable") == 0
        assert status(cluster, slave, "disable") == ResponseCode.SERVICE_NOT_AVAILABLE


def test_a_lone_master_below_the_minimum_serves_no_user_because_others_may_lead() -> None:
    with World(934) as world:
        cluster = GuardedCluster(world, 3)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:orders", ["Get"]))
        former = cluster.master
        others = [node for node in cluster.brokers if node is not former]
        for node in others:
            node.kill()
        world.run_until(lambda: len(cluster.app(former).ha.counted_members()) == 1, 30_000)
        former.pause(20_000)
        for node in others:
            cluster.start(node)
        successor = leading(cluster, others)
        cut_off(world, former, strangers_of(world))
        assert status(cluster, successor, "disable") == 0
        world.run_for_ms(20_000)
        assert cluster.app(former).membership.accepts_sends
        assert asked(cluster, former).code == BUSY


def test_requests_of_slaves_that_were_long_on_their_way_make_no_former_master_sure() -> None:
    with World(935) as world:
        cluster = GuardedCluster(world, 3)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:orders", ["Get"]))
        former = cluster.master
        others = [node for node in cluster.brokers if node is not former]
        for node in strangers_of(world, former):
            world.network.cut(node.host, former.host, both=node not in others)
        successor = leading(cluster, others)
        world.run_for_ms(3_000)
        assert status(cluster, successor, "disable") == 0
        for node in others:
            world.network.heal(node.host, former.host)
        for _ in range(30):
            world.run_for_ms(50)
            assert cluster.app(former).membership.accepts_sends, "it does not know its successor"
            assert asked(cluster, former).code == BUSY


@pytest.mark.parametrize("wait_ms", [0, 400])
def test_a_change_whose_master_is_deposed_meanwhile_is_answered_only_when_leases_are_over(
    wait_ms: int,
) -> None:
    with World(936) as world:
        cluster = GuardedCluster(world, 3, minInSyncReplicas=1)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:orders", ["Get"]))
        successor, silent = cluster.slaves_by_id()
        world.run_for_ms(3_000)
        world.network.stall(silent.host, cluster.master.host, 10911)
        code: list[int] = []

        async def disable() -> None:
            body = UserInfo("alice", user_status="disable").encode()
            address = cluster.app(cluster.master).address
            reply = await cluster.ask(address, Code.AUTH_UPDATE_USER, UserHeader("alice"), body)
            code.append(reply.code)

        cluster._client_node.spawn(disable())
        world.run_for_ms(wait_ms)
        cluster.run(cluster.designate(cluster.app(successor).membership.broker_id))
        world.run_until(lambda: bool(code), 10_000)
        if code == [0]:
            assert asked(cluster, silent).code == BUSY


@pytest.mark.parametrize("in_sync_min", [1, 2])
def test_no_user_notices_a_switchover(in_sync_min: int) -> None:
    with World(938) as world:
        cluster = GuardedCluster(world, 3, minInSyncReplicas=in_sync_min)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:orders", ["Pub", "Sub"]), ("Group:readers", ["Sub"]))
        for broker, controller in itertools.product(cluster.brokers, CONTROLLERS):
            world.network.delay(broker.host, controller, 30, 40)
        world.run_for_ms(3_000)
        former, successor = cluster.master, cluster.slaves_by_id()[0]
        codes: list[int] = []
        header = GetMaxOffsetHeader("orders", 0)

        async def use() -> None:
            async with cluster.client(credentials=ALICE) as client:
                while True:
                    request = RemotingCommand.request(Code.GET_MAX_OFFSET, header)
                    reply = await client.remoting.call(cluster.app(former).address, request)
                    codes.append(reply.code)

        for _ in range(30):
            cluster._client_node.spawn(use())
            world.run_for_ms(3)
        cluster.run(cluster.designate(cluster.app(successor).membership.broker_id))
        world.run_until(lambda: cluster.masters == [successor], 10_000)
        world.run_for_ms(2_000)
        assert set(codes) == {ResponseCode.SUCCESS}


def test_a_former_master_that_cannot_be_checked_passes_on_nothing() -> None:
    with World(939) as world, patch.object(HandOverRequests, "_is_of_this_set", unknown):
        cluster = GuardedCluster(world, 3)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:orders", ["Sub"]), ("Group:readers", ["Sub"]))
        former, successor = cluster.master, cluster.slaves_by_id()[0]
        world.run_for_ms(3_000)
        cluster.run(cluster.designate(cluster.app(successor).membership.broker_id))
        world.run_until(lambda: cluster.masters == [successor], 10_000)
        header = QueryConsumerOffsetHeader("readers", "orders", 0)
        reply = cluster.run(
            cluster.ask(cluster.app(former).address, Code.QUERY_CONSUMER_OFFSET, header, credentials=ALICE)
        )
        assert reply.code == BUSY


async def unknown(self: HandOverRequests, peer: Peer, broker_id: int | None) -> bool:
    return False


def test_a_read_that_is_asked_again_here_is_as_its_client_has_signed_it() -> None:
    with World(940) as world:
        cluster = GuardedCluster(world, 3)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:orders", ["Sub"]), ("Group:readers", ["Sub"]))
        former, successor = cluster.master, cluster.slaves_by_id()[0]
        cluster.run(cluster.designate(cluster.app(successor).membership.broker_id))
        world.run_until(lambda: cluster.app(former).requests.forwarding.reached, 10_000)
        flags = SYS_FLAG_SUBSCRIPTION | SYS_FLAG_SUSPEND
        header = PullMessageHeader(
            "readers", "orders", 0, 0, 32, flags, 0, 15_000, 0, subscription="*", expression_type="TAG"
        )
        codes: list[int] = []

        async def wait() -> None:
            async with cluster.client(credentials=ALICE) as client:
                request = RemotingCommand.request(Code.PULL_MESSAGE, header)
                codes.append((await client.remoting.call(cluster.app(former).address, request, 20_000)).code)

        cluster._client_node.spawn(wait())
        world.run_for_ms(1_000)
        successor.kill()
        world.run_until(lambda: bool(codes), 20_000)
        assert codes == [BUSY]


@pytest.mark.parametrize("ends", [False, True], ids=["pauses", "ends"])
def test_requests_wait_while_a_master_is_unsure_whether_it_leads(ends: bool) -> None:
    with World(941) as world:
        cluster = GuardedCluster(world, 3)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:orders", ["Pub", "Sub"]))
        world.run_for_ms(3_000)
        slave = cluster.slaves_by_id()[0]
        address, header, codes = cluster.app(cluster.master).address, GetMaxOffsetHeader("orders", 0), []

        async def use() -> None:
            async with cluster.client(credentials=ALICE) as client:
                for _ in range(60):
                    request = RemotingCommand.request(Code.GET_MAX_OFFSET, header)
                    codes.append((await client.remoting.call(address, request)).code)
                    await asyncio.sleep(0.05)
                await client.producer("producers").send("orders", b"x")

        task = cluster._client_node.spawn(use())
        world.run_for_ms(500)
        if ends:
            slave.kill()
        else:
            slave.pause(2_000)
        world.run_until(task.done, 30_000)
        assert codes == [ResponseCode.SUCCESS] * 60
        assert task.exception() is None
