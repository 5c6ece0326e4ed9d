"""Whole broker sets on virtual time: real brokers, controllers, name server and client code, one seed each."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from broker.app import BrokerApp
from broker.replicas import Role
from broker.settings import BrokerSettings
from controller.server import ControllerApp
from controller.settings import ControllerSettings
from mqclient.client import Client
from mqclient.errors import SendOutcomeUnknown, SendRefused
from mqclient.message import StoredMessage
from mqclient.producer import SendResult, SendStatus
from namesrv.server import NamesrvApp
from namesrv.settings import NamesrvSettings
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.admin import CreateTopicHeader
from simulation.node import Node, SimulatedClock
from simulation.world import World

NAMESRV = "10.0.3.1:9876"
CONTROLLERS = ["10.0.1.1", "10.0.1.2", "10.0.1.3"]
PEERS = ";".join(f"n{number}-{host}:9878" for number, host in enumerate(CONTROLLERS))


class Cluster:
    """A name server, three controllers and a set of brokers in one world."""

    def __init__(self, world: World, brokers: int, **settings: Any) -> None:
        self.world = world
        namesrv = world.node("namesrv", "10.0.3.1")
        namesrv.start(lambda runtime: NamesrvApp(NamesrvSettings(bindAddress="10.0.3.1"), runtime))
        for number, host in enumerate(CONTROLLERS):
            world.node(f"controller-{number}", host).start(self._controller(number, host))
        self._settings = settings
        self.brokers = [world.node(f"broker-{number}", f"10.0.2.{number + 1}") for number in range(brokers)]
        for node in self.brokers:
            self.start(node)
        self._client_node = world.node("client", "10.0.4.1")

    def _controller(self, number: int, host: str) -> Any:
        settings = ControllerSettings(
            bindAddress=host,
            controllerDLegerGroup="group1",
            controllerDLegerPeers=PEERS,
            controllerDLegerSelfId=f"n{number}",
            mappedFileSize=1 << 20,
            configStorePath=Path("controller.properties"),
        )
        return lambda runtime: ControllerApp(settings, runtime)

    def start(self, node: Node) -> None:
        settings = BrokerSettings(
            **{
                "bindAddress": node.host,
                "brokerIP1": node.host,
                "namesrvAddr": NAMESRV,
                "controllerAddr": ";".join(f"{host}:9878" for host in CONTROLLERS),
                "mappedFileSizeCommitLog": 64 * 1024,
                "mappedFileSizeConsumeQueue": 2000,
                "minInSyncReplicas": 2,
                **self._settings,
            }
        )
        node.start(lambda runtime: BrokerApp(settings, runtime))

    def app(self, node: Node) -> BrokerApp:
        assert isinstance(node.app, BrokerApp), f"{node.name}: {node.failure!r}"
        return node.app

    @property
    def masters(self) -> list[Node]:
        return [
            node for node in self.brokers if isinstance(node.app, BrokerApp) and node.app.role.accepts_sends
        ]

    @property
    def master(self) -> Node:
        (node,) = self.masters
        return node

    def in_sync(self, count: int) -> bool:
        return any(self.app(node).ha.in_sync_count() == count for node in self.masters)

    def start_up(self) -> None:
        """Wait until all brokers are in sync and the topic is there."""
        self.wait_in_sync(len(self.brokers))
        self.create_topic()

    def wait_in_sync(self, count: int, limit_ms: int = 10_000) -> None:
        self.world.run_until(lambda: self.in_sync(count), limit_ms)

    def client(self) -> Client:
        return Client(NAMESRV, clock=SimulatedClock(self._client_node), random=random.Random(1))

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.world.run(coroutine, limit_ms=120_000)

    def create_topic(self) -> None:
        """Topic "orders" on the master, known to the name server."""
        self.run(self._create_topic())

    async def _create_topic(self) -> None:
        async with self.client() as client:
            header = CreateTopicHeader("orders", "TBW102", 4, 4, 6)
            command = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            reply = await client.remoting.call(self.app(self.master).address, command)
            assert reply.code == 0, reply.remark
            await asyncio.sleep(0.1)

    async def send_all(self, bodies: list[bytes]) -> list[SendResult]:
        """Each body until it is acknowledged; every outcome that stored it."""
        results: list[SendResult] = []
        async with self.client() as client:
            producer = client.producer("producers")
            for body in bodies:
                while True:
                    try:
                        result = await producer.send("orders", body)
                    except SendRefused:
                        await asyncio.sleep(0.05)
                        continue
                    except SendOutcomeUnknown:
                        continue
                    results.append(result)
                    if result.status is SendStatus.SEND_OK:
                        break
        return results

    async def read_all(self) -> list[StoredMessage]:
        """Every readable message of the topic."""
        found: list[StoredMessage] = []
        async with self.client() as client:
            consumer = client.consumer("readers")
            for queue in await consumer.queues("orders"):
                result = await consumer.pull(queue, 0)
                while result.messages:
                    found += result.messages
                    result = await consumer.pull(queue, result.next_offset)
        return found


def test_three_brokers_are_in_sync_and_writable_within_four_seconds() -> None:
    with World(1) as world:
        cluster = Cluster(world, 3)
        cluster.wait_in_sync(3, limit_ms=4_000)
        assert len(cluster.masters) == 1


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_message_is_acknowledged_by_all_three_and_then_read(seed: int) -> None:
    with World(seed) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        bodies = [f"message {number}".encode() * 20 for number in range(50)]
        results = cluster.run(cluster.send_all(bodies))
        assert [result.status for result in results] == [SendStatus.SEND_OK] * 50
        ends = {cluster.app(node).store.max_offset() for node in cluster.brokers}
        assert len(ends) == 1, "acknowledged means: every member holds it"
        assert sorted(message.body for message in cluster.run(cluster.read_all())) == sorted(bodies)


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_nothing_acknowledged_is_lost_when_the_master_is_killed(seed: int) -> None:
    with World(seed) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        first = [f"before {number}".encode() for number in range(20)]
        cluster.run(cluster.send_all(first))
        old = cluster.master
        old.kill()
        killed_at_ms = world.now_ms
        cluster.wait_in_sync(2)
        assert world.now_ms - killed_at_ms < 4_000
        second = [f"after {number}".encode() for number in range(20)]
        cluster.run(cluster.send_all(second))
        cluster.start(old)
        cluster.wait_in_sync(3)
        assert cluster.app(old).role.role is Role.SLAVE
        read = [message.body for message in cluster.run(cluster.read_all())]
        assert set(first + second) <= set(read)
        ends = {cluster.app(node).store.max_offset() for node in cluster.brokers}
        assert len(ends) == 1


def test_a_stopped_master_hands_over_quickly_and_leaves_no_task_behind() -> None:
    with World(5) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        bodies = [f"message {number}".encode() for number in range(10)]
        cluster.run(cluster.send_all(bodies))
        old = cluster.master
        began_ms = world.now_ms
        world.run(old.stop())
        assert world.now_ms - began_ms < 3_000
        assert old.left_behind == []
        cluster.wait_in_sync(2, limit_ms=4_000)
        assert {message.body for message in cluster.run(cluster.read_all())} == set(bodies)


def test_a_lone_broker_serves_under_contract_b() -> None:
    with World(6) as world:
        cluster = Cluster(world, 1, minInSyncReplicas=1)
        cluster.start_up()
        cluster.run(cluster.send_all([b"alone"]))
        assert [message.body for message in cluster.run(cluster.read_all())] == [b"alone"]


def test_a_set_below_min_in_sync_replicas_stores_nothing() -> None:
    with World(7) as world:
        cluster = Cluster(world, 1)
        cluster.start_up()
        world.run_for_ms(1_000)
        end = cluster.app(cluster.master).store.max_offset()

        async def send() -> None:
            async with cluster.client() as client:
                with pytest.raises(SendRefused, match="in-sync replicas not enough"):
                    await client.producer("producers").send("orders", b"refused")

        cluster.run(send())
        assert cluster.app(cluster.master).store.max_offset() == end


def test_an_isolated_master_acknowledges_nothing_and_follows_when_it_is_back() -> None:
    with World(8) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        cluster.run(cluster.send_all([b"before"]))
        old = cluster.master
        others = [node.host for node in cluster.brokers if node is not old] + CONTROLLERS + ["10.0.3.1"]
        for host in others:
            world.network.cut(old.host, host)
        world.run_until(lambda: any(node is not old for node in cluster.masters), 30_000)
        app = cluster.app(old)
        assert app.store.confirm_offset() == app.store.max_offset()
        for host in others:
            world.network.heal(old.host, host)
        world.run_until(lambda: cluster.app(old).role.role is Role.SLAVE, 30_000)
        cluster.wait_in_sync(3, limit_ms=30_000)
        assert {message.body for message in cluster.run(cluster.read_all())} == {b"before"}


def test_all_brokers_killed_and_restarted_keep_what_was_acknowledged() -> None:
    with World(9) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        bodies = [f"message {number}".encode() for number in range(30)]
        cluster.run(cluster.send_all(bodies))
        for node in cluster.brokers:
            node.kill()
        for node in cluster.brokers:
            cluster.start(node)
        cluster.wait_in_sync(3, limit_ms=30_000)
        assert {message.body for message in cluster.run(cluster.read_all())} == set(bodies)


def test_a_held_pull_is_answered_when_its_message_arrives() -> None:
    with World(10) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()

        async def wait_for_it() -> tuple[list[bytes], int]:
            async with cluster.client() as client:
                producer, consumer = client.producer("producers"), client.consumer("readers")
                await producer.send("orders", b"first", queue_id=0)
                (queue, *_) = await consumer.queues("orders")
                pull = asyncio.create_task(consumer.pull(queue, 1, suspend_ms=15_000))
                await asyncio.sleep(2)
                assert not pull.done()
                await producer.send("orders", b"second", queue_id=0)
                sent_ms = world.now_ms
                result = await pull
                return [message.body for message in result.messages], world.now_ms - sent_ms

        bodies, waited_ms = cluster.run(wait_for_it())
        assert bodies == [b"second"]
        assert waited_ms < 500
