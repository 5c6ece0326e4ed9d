"""Topics that a program in Python makes, describes and deletes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from mqclient import AdminFailed, MessageQueue, QueueRange, RouteUnknown
from remoting.bodies import body
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with World(971) as world:
        cluster = Cluster(world, 2)
        cluster.start_up()
        yield cluster


def run(cluster: Cluster, play: Coroutine[Any, Any, None]) -> None:
    cluster.run(asyncio.wait_for(cluster._client_node.spawn(play), 100))


def test_a_topic_is_made_described_changed_and_deleted(cluster: Cluster) -> None:
    async def play() -> None:
        async with cluster.client() as client:
            admin = client.admin()
            await admin.create_topic("clicks", queues=2)
            assert "clicks" in await admin.topics()
            sent = await client.producer("PG").send("clicks", b"1", queue_id=1)
            first, second = (MessageQueue("clicks", sent.queue.broker_name, number) for number in (0, 1))
            assert await admin.describe_topic("clicks") == {first: QueueRange(0, 0), second: QueueRange(0, 1)}
            assert [len(each) for each in (await admin.describe_topic("clicks")).values()] == [0, 1]
            await admin.create_topic("clicks", queues=3, cluster="DefaultCluster")
            assert len(await admin.describe_topic("clicks")) == 3, "as soon as the call returns"
            with pytest.raises(AdminFailed, match="clicks has 3 queues, and 2 would hide messages"):
                await admin.create_topic("clicks", queues=2)
            await admin.delete_topic("clicks")
            await admin.delete_topic("clicks")
            assert "clicks" not in await admin.topics()
        async with cluster.client() as client:
            with pytest.raises(RouteUnknown):
                await client.admin().describe_topic("clicks")

    run(cluster, play())


def test_a_change_that_is_not_possible_says_where_and_why(cluster: Cluster) -> None:
    async def play() -> None:
        async with cluster.client() as client:
            admin = client.admin()
            with pytest.raises(ValueError, match="at least one queue"):
                await admin.create_topic("clicks", queues=0)
            with pytest.raises(AdminFailed, match="know no broker set") as failed:
                await admin.create_topic("clicks", cluster="Elsewhere")
            assert failed.value.where == "Elsewhere"
            with pytest.raises(AdminFailed, match="answered 29") as failed:
                await admin.create_topic("SCHEDULE_TOPIC_XXXX", queues=18)
            assert failed.value.code == 29

    run(cluster, play())
    for node in cluster.brokers:
        node.kill()
    cluster.world.run_for_ms(1_000)

    async def without_brokers() -> None:
        async with cluster.client() as client:
            with pytest.raises(AdminFailed):
                await client.admin().create_topic("clicks")

    run(cluster, without_brokers())
    cluster.world.nodes["namesrv"].kill()

    async def without_name_server() -> None:
        async with cluster.client() as client:
            with pytest.raises(AdminFailed, match="name servers: "):
                await client.admin().topics()

    run(cluster, without_name_server())


def test_long_lists_of_a_server_are_read(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists in requests are limited, those of servers are not."""
    monkeypatch.setattr(body, "LIST_ROWS_MAX", 3)

    async def play() -> None:
        async with cluster.client() as client:
            assert len(await client.admin().topics()) > 3

    run(cluster, play())
