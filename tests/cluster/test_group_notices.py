"""Members of consumer groups are notified (40) to rebalance on changes of members, topics and master."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from broker.app import BrokerApp
from mqclient.client import Client
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Router
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster, leading_controller


class NotifiedRouter(Router):
    """A client's router; `groups` are the groups of its notifications, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[str] = []
        self.add(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._notified)

    def _notified(self, peer: Peer, command: RemotingCommand) -> None:
        self.groups.append(command.ext["consumerGroup"])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two brokers in sync."""
    with World(31) as world:
        cluster = Cluster(world, 2)
        cluster.start_up()
        yield cluster


async def beat(client: Client, address: str, wanted: list[SubscriptionData], *groups: str) -> None:
    """Sends a heartbeat with a consumer of each group to the broker, and waits for notifications."""
    consumers = [ConsumerData(group, subscription_data_set=wanted) for group in groups]
    data = HeartbeatData("c1", [], consumers)
    heartbeat = RemotingCommand.request(RequestCode.HEART_BEAT, None, data.encode())
    assert (await client.remoting.call(address, heartbeat)).code == 0
    await asyncio.sleep(0.1)


def test_a_new_topic_is_notified_and_a_known_one_is_not(cluster: Cluster) -> None:
    async def scenario() -> list[int]:
        router, counts = NotifiedRouter(), []
        async with cluster.client(router) as client:
            for topics in (["orders"], ["orders"], ["orders", "returns"], ["orders", "returns"]):
                wanted = [SubscriptionData(topic, sub_version=len(counts)) for topic in topics]
                await beat(client, cluster.app(cluster.master).address, wanted, "CG")
                counts.append(len(router.groups))
        return counts

    assert cluster.run(scenario()) == [1, 1, 2, 2]


def test_a_new_master_notifies_every_group_once(cluster: Cluster) -> None:
    (slave,) = (cluster.app(node) for node in cluster.brokers if node is not cluster.master)

    async def scenario() -> list[list[str]]:
        router, seen = NotifiedRouter(), []
        async with cluster.client(router) as client:
            await beat(client, slave.address, [SubscriptionData("orders")], "CG", "CG2")
            router.groups.clear()
            cluster.master.kill()
            await asyncio.sleep(2)
            assert slave.membership.accepts_sends
            seen.append(list(router.groups))
            await announced_again(cluster, slave)
            seen.append(list(router.groups))
        return seen

    assert cluster.run(scenario()) == [["CG", "CG2"], ["CG", "CG2"]]


async def announced_again(cluster: Cluster, master: BrokerApp) -> None:
    """Makes another controller leader, which announces the same master."""
    epoch = master.membership.master_epoch
    leading_controller(cluster.world).kill()
    await asyncio.sleep(5)
    assert master.membership.master_epoch == epoch
    assert master.membership.accepts_sends
