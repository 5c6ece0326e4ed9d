"""A name server, the brokers of a Raft-mode set and a client in one simulated world."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any

from broker.app import BrokerApp
from broker.settings.broker import BrokerSettings
from dledger.raft.settings import DLedgerSettings
from messagestore.store.brokerstore import BrokerStore
from mqclient.errors import SendOutcomeUnknown, SendRefused
from raftstore import member
from remoting.signing import Credentials
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.brokerset import NAMESRV, Cluster

HOSTS = ["10.0.2.1", "10.0.2.2", "10.0.2.3"]
MEMBERS = {f"n{number}": f"{host}:40911" for number, host in enumerate(HOSTS)}
PEERS = ";".join(f"{member}-{address}" for member, address in MEMBERS.items())

INDEX_FILE_BYTES = 32 * 4096
"""A simulated disk holds all bytes of a file twice, and an index file of a real member has 160 MiB."""

ledger_settings = member.ledger_settings


def small_ledger(*store: Any, **options: Any) -> DLedgerSettings:
    """Replaces raftstore.member.ledger_settings."""
    return replace(ledger_settings(*store, **options), index_file_bytes=INDEX_FILE_BYTES)


class GroupSet(Cluster):
    """`settings` are those of every broker, `ports` those of the name server, `credentials` those of clients."""

    def __init__(
        self,
        world: World,
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
        self.brokers = [world.node(f"broker-{number}", host) for number, host in enumerate(HOSTS)]
        for node in self.brokers:
            self.start(node)
        self._client_node = world.node("client", "10.0.4.1")

    def start(self, node: Node, **changed: Any) -> None:
        settings = BrokerSettings(
            **{
                "bindAddress": node.host,
                "brokerIP1": node.host,
                "namesrvAddr": NAMESRV,
                "enableDLegerCommitLog": True,
                "dLegerGroup": "broker-a",
                "dLegerPeers": PEERS,
                "dLegerSelfId": f"n{self.brokers.index(node)}",
                "mappedFileSizeCommitLog": 64 * 1024,
                "mappedFileSizeConsumeQueue": 2000,
                **self._settings,
                **changed,
            }
        )
        node.start(lambda runtime: BrokerApp(settings, runtime))

    def start_newcomer(self, number: int, present: Mapping[str, str], **changed: Any) -> Node:
        """Another broker, unknown to the set so far; its peers are the present members and itself."""
        host = f"10.0.2.{number + 1}"
        node = self.world.node(f"broker-{number}", host)
        self.brokers.append(node)
        members = {**present, f"n{number}": f"{host}:40911"}
        peers = ";".join(f"{member}-{address}" for member, address in members.items())
        self.start(node, dLegerSelfId=f"n{number}", dLegerPeers=peers, **changed)
        return node

    def has_master(self) -> bool:
        return len(self.masters) == 1

    def start_up(self) -> None:
        self.wait_for_master()
        self.create_topic()

    def wait_for_master(self) -> None:
        """Waits until name servers know the master, too."""
        self.world.run_until(self.has_master, 20_000)
        self.world.run_for_ms(500)

    def caught_up(self) -> bool:
        """Whether every broker has dispatched the same committed log."""
        stores = [node.app.store for node in self.brokers if isinstance(node.app, BrokerApp)]
        ends = {end for store in stores for end in (store.confirm_offset(), store.dispatched_offset())}
        return len(stores) == len(self.brokers) and len(ends) == 1

    def refusals_of(self, bodies: list[bytes]) -> Coroutine[Any, Any, int]:
        """Sends the bodies every 10 ms, one try each, and returns how many sends failed."""

        async def send() -> int:
            refused = 0
            async with self.client() as client:
                producer = client.producer("producers")
                for body in bodies:
                    try:
                        await producer.send("orders", body)
                    except (SendRefused, SendOutcomeUnknown):
                        refused += 1
                    await asyncio.sleep(0.01)
            return refused

        return send()


def started(world: World, **settings: Any) -> GroupSet:
    group = GroupSet(world, **settings)
    group.start_up()
    return group


def shows(store: BrokerStore, bodies: list[bytes]) -> bool:
    """Whether the messages that the queues list contain all bodies."""
    found = bytearray()
    for topic, queue_id in store.queues():
        for entry in store.entries(topic, queue_id, store.min_queue_offset(topic, queue_id), 1000):
            found += store.read(entry.physical_offset, entry.size)
    return all(body in found for body in bodies)
