"""A name server, controllers, brokers of one set and a client in one simulated world."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from broker.app import BrokerApp
from broker.settings.broker import BrokerSettings
from controller.server import ControllerApp
from controller.settings import ControllerSettings
from controller.state import ReplicasState
from mqclient.client import Client
from mqclient.errors import SendOutcomeUnknown, SendRefused
from mqclient.message import StoredMessage
from mqclient.producer import SendResult, SendStatus
from namesrv.server import NamesrvApp
from namesrv.settings import NamesrvSettings
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.admin import CreateTopicHeader
from remoting.headers.controller import ElectMasterHeader
from remoting.router import Router
from remoting.signing import Credentials
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.world import World

NAMESRV = "10.0.3.1:9876"
CONTROLLERS = ["10.0.1.1", "10.0.1.2", "10.0.1.3"]
PEERS = ";".join(f"n{number}-{host}:9878" for number, host in enumerate(CONTROLLERS))


class Cluster:
    """A name server, three controllers and a set of brokers in one world. `ports` are settings of the name server and the
    controllers, `credentials` those of clients."""

    def __init__(
        self,
        world: World,
        brokers: int,
        *,
        ports: dict[str, Any] | None = None,
        credentials: Credentials | None = None,
        **settings: Any,
    ) -> None:
        self.world = world
        self._ports = ports or {}
        self._credentials = credentials
        self._settings = settings
        world.node("namesrv", "10.0.3.1")
        self.start_namesrv()
        for number, host in enumerate(CONTROLLERS):
            world.node(f"controller-{number}", host)
        self.start_controllers()
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
            metricsExporterType=self._settings.get("metricsExporterType", "DISABLE"),
            **self._ports,
        )
        return lambda runtime: ControllerApp(settings, runtime)

    def start_controllers(self) -> None:
        for number, host in enumerate(CONTROLLERS):
            self.world.nodes[f"controller-{number}"].start(self._controller(number, host))

    def start_namesrv(self) -> None:
        settings = NamesrvSettings(bindAddress="10.0.3.1", **self._ports)
        self.world.nodes["namesrv"].start(lambda runtime: NamesrvApp(settings, runtime))

    def start(self, node: Node, **changed: Any) -> None:
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
                **changed,
            }
        )
        node.start(lambda runtime: BrokerApp(settings, runtime))

    def app(self, node: Node) -> BrokerApp:
        assert isinstance(node.app, BrokerApp), f"{node.name}: {node.failure!r}"
        return node.app

    @property
    def masters(self) -> list[Node]:
        return [
            node
            for node in self.brokers
            if isinstance(node.app, BrokerApp) and node.app.membership.accepts_sends
        ]

    @property
    def master(self) -> Node:
        (node,) = self.masters
        return node

    @property
    def slaves(self) -> list[Node]:
        return [node for node in self.brokers if node is not self.master]

    def slaves_by_id(self) -> list[Node]:
        """The slaves, in the order in which equal candidates are elected."""
        return sorted(self.slaves, key=lambda node: self.app(node).membership.broker_id or 0)

    def in_sync(self, count: int) -> bool:
        return any(self.app(node).ha.in_sync_count() == count for node in self.masters)

    def start_up(self) -> None:
        """Wait until all brokers are in sync and the topic exists."""
        self.wait_in_sync(len(self.brokers))
        self.create_topic()

    def wait_in_sync(self, count: int, limit_ms: int = 10_000) -> None:
        self.world.run_until(lambda: self.in_sync(count), limit_ms)

    def client(self, router: Router | None = None, credentials: Credentials | None = None) -> Client:
        """A client; `router` answers the requests of brokers."""
        keys = credentials or self._credentials
        client = Client(
            NAMESRV, clock=SimulatedClock(self._client_node), random=random.Random(1), credentials=keys
        )
        if router is not None:
            client.remoting = RemotingClient(clock=client.clock, router=router)
        return client

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
            while reply.code == ResponseCode.SYSTEM_BUSY:  # a guarded master that has just begun
                await asyncio.sleep(0.1)
                reply = await client.remoting.call(self.app(self.master).address, command)
            assert reply.code in (0, ResponseCode.FLUSH_SLAVE_TIMEOUT), reply.remark
            await asyncio.sleep(0.1)

    async def ask(
        self,
        address: str,
        code: int,
        header: Any = None,
        body: bytes | None = None,
        credentials: Credentials | None = None,
    ) -> RemotingCommand:
        """One request of a client."""
        async with self.client(credentials=credentials) as client:
            return await client.remoting.call(address, RemotingCommand.request(code, header, body))

    async def ask_as_controller(
        self, address: str, code: int, header: Any = None, body: bytes | None = None
    ) -> RemotingCommand:
        """One request from the first controller's host."""
        node = self.world.nodes["controller-0"]

        async def asked() -> RemotingCommand:
            client = RemotingClient(clock=SimulatedClock(node))
            try:
                return await client.call(address, RemotingCommand.request(code, header, body), 5_000)
            finally:
                await client.close()

        return await node.spawn(asked())

    async def ask_leader(self, code: int, header: Any = None) -> RemotingCommand:
        """One request to the controllers' leader; its answer must be success."""
        reply = await self.ask(f"{CONTROLLERS[0]}:9878", RequestCode.CONTROLLER_GET_METADATA_INFO)
        reply = await self.ask(reply.ext["controllerLeaderAddress"], code, header)
        assert reply.code == 0, reply.remark
        return reply

    async def designate(self, broker_id: int | None) -> None:
        """An operator elects `broker_id`."""
        assert broker_id is not None
        header = ElectMasterHeader("broker-a", "DefaultCluster", broker_id, True)
        await self.ask_leader(RequestCode.CONTROLLER_ELECT_MASTER, header)

    async def send_all(self, bodies: list[bytes]) -> list[SendResult]:
        """Sends each body until it is acknowledged, and returns every result that stored it."""
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

    def bodies(self) -> list[bytes]:
        """The bodies of all readable messages of the topic, sorted."""
        return sorted(bytes(message.body) for message in self.run(self.read_all()))


def controllers_of(world: World) -> list[Node]:
    return [node for node in world.nodes.values() if isinstance(node.app, ControllerApp)]


def leading_controller(world: World) -> Node:
    (leader,) = (
        node
        for node in controllers_of(world)
        if isinstance(node.app, ControllerApp) and node.app.node.is_active
    )
    return leader


def leading_state(world: World) -> ReplicasState:
    """The state of the leading controller."""
    app = leading_controller(world).app
    assert isinstance(app, ControllerApp)
    return app.state


def cut_off(world: World, node: Node, others: list[Node]) -> None:
    for other in others:
        if other is not node:
            world.network.cut(node.host, other.host)
