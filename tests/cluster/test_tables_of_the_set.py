"""A slave enters the SyncStateSet only with log and tables, because any member may lead next."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from broker.neighbours.tablecopy import TableCopy
from broker.tables.holders import TablesVersion
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.admin import CreateTopicHeader
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster


@pytest.fixture
def world() -> Iterator[World]:
    with World(41) as world:
        yield world


def test_a_slave_with_the_log_but_without_the_tables_stays_outside_the_set(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(world, 3)
    cluster.start_up()
    master = cluster.master
    late = next(node for node in cluster.brokers if node is not master)
    late.kill()
    world.run_until(lambda: cluster.app(master).ha.in_sync_count() == 2, 60_000)

    async def make() -> None:
        async with cluster.client() as client:
            header = CreateTopicHeader("invoices", "TBW102", 4, 4, 6)
            request = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            assert (await client.remoting.call(f"{master.host}:10911", request, 10_000)).code == 0

    cluster.run(make())
    here, store = asyncio.Event(), TableCopy._store

    async def stored_later(self: TableCopy, version: TablesVersion) -> bool:
        await here.wait()
        return await store(self, version)

    monkeypatch.setattr(TableCopy, "_store", stored_later)
    cluster.start(late)
    world.run_until(lambda: late.app is not None, 20_000)
    world.run_until(
        lambda: cluster.app(late).store.max_offset() == cluster.app(master).store.max_offset(), 20_000
    )
    world.run_for_ms(20_000)
    assert cluster.app(master).ha.in_sync_count() == 2
    assert cluster.app(late).tables.topics.find("invoices") is None
    here.set()
    world.run_until(lambda: cluster.app(master).ha.in_sync_count() == 3, 20_000)
    assert cluster.app(late).tables.topics.find("invoices") is not None
