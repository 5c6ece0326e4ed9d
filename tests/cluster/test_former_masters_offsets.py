"""A master partitioned from all but its clients returns: offsets committed to it meanwhile are discarded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import pytest

from mqclient.client import Client
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.header import Header
from remoting.headers.admin import CreateTopicHeader, TopicHeader
from remoting.headers.offsets import ResetOffsetHeader, UpdateConsumerOffsetHeader
from remoting.headers.pull import SYS_FLAG_SUBSCRIPTION, PullMessageHeader
from remoting.headers.send import SendMessageHeader
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.brokerset import CONTROLLERS, NAMESRV, Cluster

GROUP = "CG"
TOPICS = ("orders", "invoices")
MESSAGES = 20
SOON_MS = 1_000
"""Much shorter than the interval at which slaves copy offsets."""


class Partitioned:
    """`former` led, group CG committed `MESSAGES` - 5 of queue 1 of each topic, and `master` leads now."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = cluster = Cluster(world, 3)
        cluster.start_up()
        self.former = cluster.master
        self.act(self._prepare)
        world.run_for_ms(3_000)
        self.others = [node for node in cluster.brokers if node is not self.former]
        hosts = [node.host for node in self.others] + [*CONTROLLERS, NAMESRV.partition(":")[0]]
        for host in hosts:
            world.network.cut(self.former.host, host)
        world.run_until(lambda: len(self.masters_here()) == 1, 60_000)

    def act(self, what: Callable[[Client], Awaitable[None]]) -> None:
        async def acted() -> None:
            async with self.cluster.client() as client:
                await what(client)

        self.cluster.run(acted())

    def masters_here(self) -> list[Node]:
        return [node for node in self.others if node in self.cluster.masters]

    @property
    def master(self) -> Node:
        (master,) = self.masters_here()
        return master

    async def ask(
        self, client: Client, node: Node, code: int, header: Header | None = None, body: bytes | None = None
    ) -> RemotingCommand:
        address = f"{node.host}:10911"
        return await client.remoting.call(address, RemotingCommand.request(code, header, body), 10_000)

    async def commit(self, client: Client, node: Node, topic: str, offset: int) -> None:
        header = UpdateConsumerOffsetHeader(GROUP, topic, 1, offset)
        assert (await self.ask(client, node, RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0

    async def pull(self, client: Client, node: Node, topic: str, offset: int) -> RemotingCommand:
        header = PullMessageHeader(
            GROUP, topic, 1, offset, 32, SYS_FLAG_SUBSCRIPTION, 0, 0, 0, subscription="*"
        )
        return await self.ask(client, node, RequestCode.PULL_MESSAGE, header)

    async def _prepare(self, client: Client) -> None:
        body = SubscriptionGroupConfig(GROUP).encode()
        await self.ask(client, self.former, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        header = CreateTopicHeader("invoices", "TBW102", 4, 4, 6)
        await self.ask(client, self.former, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        for topic in TOPICS:
            await self.send(client, topic, MESSAGES)
            await self.commit(client, self.former, topic, MESSAGES - 5)

    async def send(self, client: Client, topic: str, count: int) -> None:
        producer = client.producer("PG")
        for number in range(count):
            assert (await producer.send(topic, b"%d" % number, queue_id=1, timeout_ms=20_000)).acknowledged

    async def moved_back(self, client: Client) -> None:
        """An administrator resets the group's offset under the new master, and the group continues there."""
        move = ResetOffsetHeader("orders", GROUP, 0, queue_id=1, offset=5)
        moved = await self.ask(client, self.master, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, move)
        assert moved.code == 0
        reply = await self.pull(client, self.master, "orders", MESSAGES)
        assert (reply.code, reply.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "5")
        assert (await self.pull(client, self.master, "orders", 5)).code == 0
        await self.commit(client, self.master, "orders", 7)

    async def recreated(self, client: Client) -> None:
        """Deletes and recreates the other topic under the new master; the group consumes two messages."""
        deleted = TopicHeader("invoices")
        assert (await self.ask(client, self.master, RequestCode.DELETE_TOPIC_IN_BROKER, deleted)).code == 0
        made = CreateTopicHeader("invoices", "TBW102", 4, 4, 6)
        assert (await self.ask(client, self.master, RequestCode.UPDATE_AND_CREATE_TOPIC, made)).code == 0
        await self.commit(client, self.master, "invoices", 2)

    def offset(self, node: Node, topic: str) -> int | None:
        return self.cluster.app(node).tables.offsets.find(GROUP, topic, 1)


@pytest.fixture
def partitioned() -> Iterator[Partitioned]:
    with World(81) as world:
        yield Partitioned(world)


def test_offsets_committed_to_a_partitioned_master_are_gone_when_it_leads_again(
    partitioned: Partitioned,
) -> None:
    """They are higher than those of the master in between, which reset the group and recreated a topic."""

    async def meanwhile(client: Client) -> None:
        for topic in TOPICS:
            assert (await partitioned.pull(client, partitioned.former, topic, MESSAGES - 5)).code == 0
            await partitioned.commit(client, partitioned.former, topic, MESSAGES)
        tail = SendMessageHeader("PG", "orders", "TBW102", 4, 1, 0, 0, 0)
        stored = await partitioned.ask(client, partitioned.former, RequestCode.SEND_MESSAGE, tail, b"tail")
        assert stored.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        await partitioned.moved_back(client)
        await partitioned.recreated(client)

    partitioned.act(meanwhile)
    former = partitioned.cluster.app(partitioned.former)
    assert [partitioned.offset(partitioned.former, topic) for topic in TOPICS] == [MESSAGES, MESSAGES]
    assert former.store.next_queue_offset("orders", 1) == MESSAGES + 1
    partitioned.world.network.heal()
    between = partitioned.cluster.app(partitioned.master)
    partitioned.world.run_until(lambda: between.ha.in_sync_count() == 3, 60_000)
    partitioned.world.run_until(lambda: partitioned.offset(partitioned.former, "invoices") == 2, SOON_MS)
    partitioned.cluster.run(partitioned.cluster.designate(former.membership.broker_id))
    partitioned.world.run_until(lambda: partitioned.cluster.masters == [partitioned.former], 30_000)
    assert [partitioned.offset(partitioned.former, topic) for topic in TOPICS] == [7, 2]
    assert former.store.next_queue_offset("orders", 1) == MESSAGES

    async def read_on(client: Client) -> None:
        await partitioned.send(client, "orders", 1)
        reply = await partitioned.pull(client, partitioned.former, "orders", MESSAGES)
        assert (reply.ext["nextBeginOffset"], b"tail" in bytes(reply.body or b"")) == (
            str(MESSAGES + 1),
            False,
        )

    partitioned.act(read_on)
