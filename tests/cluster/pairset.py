"""A name server, a master, its slaves and a client in one simulated world, without controllers."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import Any

from broker.app import BrokerApp
from broker.settings.broker import BrokerSettings
from mqclient.client import Client
from mqclient.message import StoredMessage
from mqclient.producer import SendResult
from namesrv.server import NamesrvApp
from namesrv.settings import NamesrvSettings
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.admin import CreateTopicHeader
from remoting.headers.pull import SYS_FLAG_SUBSCRIPTION, PullMessageHeader
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.world import World

NAMESRV = "10.0.3.1:9876"


class Pair:
    """`settings` are those of all brokers; `master_role` is the master's brokerRole."""

    def __init__(
        self, world: World, *, slaves: int = 1, master_role: str = "SYNC_MASTER", **settings: Any
    ) -> None:
        self.world = world
        self._settings = settings
        self._master_role = master_role
        namesrv = world.node("namesrv", "10.0.3.1")
        namesrv.start(lambda runtime: NamesrvApp(NamesrvSettings(bindAddress="10.0.3.1"), runtime))
        self.nodes = [world.node(f"broker-{number}", f"10.0.2.{number + 1}") for number in range(1 + slaves)]
        self._client_node = world.node("client", "10.0.4.1")

    @property
    def master(self) -> Node:
        return self.nodes[0]

    @property
    def slave(self) -> Node:
        return self.nodes[1]

    def start(self, *nodes: Node, **changed: Any) -> None:
        for node in nodes:
            number = self.nodes.index(node)
            settings = BrokerSettings(
                **{
                    "enableControllerMode": False,
                    "brokerRole": "SLAVE" if number else self._master_role,
                    "brokerId": number,
                    "bindAddress": node.host,
                    "brokerIP1": node.host,
                    "namesrvAddr": NAMESRV,
                    "mappedFileSizeCommitLog": 64 * 1024,
                    "mappedFileSizeConsumeQueue": 2000,
                    **self._settings,
                    **changed,
                }
            )
            node.start(lambda runtime, settings=settings: BrokerApp(settings, runtime))

    def start_up(self) -> None:
        """Starts all brokers, waits until the slaves caught up, and creates the topic."""
        self.start(*self.nodes)
        self.world.run_until(lambda: self.leads() and self.slaves_in_step() == len(self.nodes) - 1, 20_000)
        self.create_topic()

    def app(self, node: Node) -> BrokerApp:
        assert isinstance(node.app, BrokerApp), f"{node.name}: {node.failure!r}"
        return node.app

    def slaves_in_step(self) -> int:
        return self.app(self.master).ha.in_sync_count() - 1 if self.master.app is not None else 0

    def end(self, node: Node) -> int:
        return self.app(node).store.max_offset()

    def caught_up(self, node: Node | None = None) -> bool:
        node = node or self.slave
        return (
            node.app is not None and self.master.app is not None and self.end(node) == self.end(self.master)
        )

    def leads(self) -> bool:
        """Whether the master takes sends."""
        return self.master.app is not None and self.app(self.master).membership.accepts_sends

    def client(self) -> Client:
        return Client(NAMESRV, clock=SimulatedClock(self._client_node), random=random.Random(1))

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.world.run(coroutine, limit_ms=120_000)

    def create_topic(self) -> None:
        """Topic "orders" on the master, known to the name server."""
        command = RemotingCommand.request(
            RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicHeader("orders", "TBW102", 4, 4, 6)
        )
        self.run(self.asked(self.app(self.master).address, command))
        self.world.run_for_ms(200)

    async def asked(self, address: str, command: RemotingCommand) -> RemotingCommand:
        async with self.client() as client:
            return await client.remoting.call(address, command, 20_000)

    def ask(self, node: Node, code: int, header: Any = None, body: bytes | None = None) -> RemotingCommand:
        """One request of a client to the broker on `node`."""
        return self.run(self.asked(self.app(node).address, RemotingCommand.request(code, header, body)))

    def pull(self, node: Node, queue_id: int = 0, offset: int = 0) -> RemotingCommand:
        """A pull of topic "orders" at the broker on `node`."""
        header = PullMessageHeader(
            "readers", "orders", queue_id, offset, 32, SYS_FLAG_SUBSCRIPTION, 0, 0, 0, subscription="*"
        )
        return self.ask(node, RequestCode.PULL_MESSAGE, header)

    def send(self, *bodies: bytes) -> list[SendResult]:
        """The result of each send."""
        return self.run(self._send(bodies))

    async def _send(self, bodies: tuple[bytes, ...]) -> list[SendResult]:
        async with self.client() as client:
            producer = client.producer("producers")
            return [await producer.send("orders", body) for body in bodies]

    def read(self) -> list[StoredMessage]:
        """Every readable message of the topic, at the master."""
        return self.run(self._read())

    async def _read(self) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        async with self.client() as client:
            consumer = client.consumer("readers")
            for queue in await consumer.queues("orders"):
                result = await consumer.pull(queue, 0)
                while result.messages:
                    found += result.messages
                    result = await consumer.pull(queue, result.next_offset)
        return found
