"""A set of brokers that delete old segments while they replicate, on virtual time."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import pytest

from broker.app import BrokerApp
from epochfile.history import EpochHistory
from mqclient.message import StoredMessage
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.headers.admin import CreateTopicHeader
from remoting.headers.offsets import QueueHeader, SearchOffsetHeader
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster

SEGMENT = 16 * 1024
KEPT_S = 10
RETENTION = {
    "mappedFileSizeCommitLog": SEGMENT,
    "fileReservedSeconds": KEPT_S,
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "cleanResourceInterval": 500,
}


def cluster_in(world: World, **settings: Any) -> Cluster:
    cluster = Cluster(world, 3, **{**RETENTION, **settings})
    cluster.start_up()
    return cluster


def bodies(first: int, count: int) -> list[bytes]:
    return [b"%08d" % number + bytes(1500) for number in range(first, first + count)]


def begins(cluster: Cluster) -> list[int]:
    return [cluster.app(node).store.min_offset() for node in cluster.brokers]


def history(cluster: Cluster, node: Node) -> EpochHistory:
    return cluster.app(node).ha.history


async def read_all_from_zero(cluster: Cluster) -> dict[bytes, StoredMessage]:
    """Reads like a consumer that starts at 0 and follows returned offsets."""
    found: dict[bytes, StoredMessage] = {}
    async with cluster.client() as client:
        consumer = client.consumer("readers")
        for queue in await consumer.queues("orders"):
            offset = -1
            result = await consumer.pull(queue, 0)
            while result.next_offset != offset:
                found.update({message.body[:8]: message for message in result.messages})
                offset = result.next_offset
                result = await consumer.pull(queue, offset)
    return found


def read(cluster: Cluster) -> dict[bytes, StoredMessage]:
    found: dict[bytes, StoredMessage] = cluster.run(read_all_from_zero(cluster))
    return found


async def fill_another_topic(cluster: Cluster, count: int) -> None:
    async with cluster.client() as client:
        header = CreateTopicHeader("noise", "TBW102", 1, 1, 6)
        command = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        await client.remoting.call(cluster.app(cluster.master).address, command)
        await asyncio.sleep(0.2)
        producer = client.producer("noise")
        for body in bodies(0, count):
            await producer.send("noise", body)


def leads(cluster: Cluster, node: Node) -> bool:
    return cluster.masters == [node]


def old_ones_gone(cluster: Cluster, at_least: int = 3 * SEGMENT) -> None:
    cluster.world.run_until(lambda: min(begins(cluster)) >= at_least, (KEPT_S + 10) * 1000)


def test_all_replicas_delete_old_segments_and_keep_young_ones() -> None:
    with World(41) as world:
        cluster = cluster_in(world)
        cluster.run(cluster.send_all(bodies(0, 60)))
        old_ones_gone(cluster)
        cluster.run(cluster.send_all(bodies(60, 20)))
        world.run_for_ms(1_000)
        found = read(cluster)
        assert {b"%08d" % number for number in range(60, 80)} <= set(found)
        assert b"00000000" not in found
        for node in cluster.brokers:
            app = cluster.app(node)
            assert app.store.trimming.deleted_segments >= 3
            names = sorted(path for path in node.disk.entries if path.startswith("commitlog/"))
            assert int(names[0].rpartition("/")[2]) == app.store.min_offset()


def test_clients_get_the_first_offsets_of_trimmed_queues() -> None:
    with World(42) as world:
        cluster = cluster_in(world)
        cluster.run(cluster.send_all(bodies(0, 60)))
        old_ones_gone(cluster)
        cluster.run(cluster.send_all(bodies(60, 8)))
        world.run_for_ms(500)
        store, address = cluster.app(cluster.master).store, cluster.app(cluster.master).address
        for queue_id in range(4):
            first = store.min_queue_offset("orders", queue_id)
            asked = QueueHeader(topic="orders", queue_id=queue_id)
            reply = cluster.run(cluster.ask(address, RequestCode.GET_MIN_OFFSET, asked))
            assert int(reply.ext["offset"]) == first > 0
            reply = cluster.run(cluster.ask(address, RequestCode.GET_EARLIEST_MSG_STORETIME, asked))
            [oldest, *_] = sorted(
                m.store_timestamp_ms for m in read(cluster).values() if m.queue_id == queue_id
            )
            assert int(reply.ext["timestamp"]) == oldest
            ever = SearchOffsetHeader(topic="orders", queue_id=queue_id, timestamp=0)
            reply = cluster.run(cluster.ask(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ever))
            assert int(reply.ext["offset"]) == first

        async def pull_from_the_former_beginning() -> None:
            async with cluster.client() as client:
                consumer = client.consumer("late")
                for queue in await consumer.queues("orders"):
                    result = await consumer.pull(queue, 0)
                    assert not result.messages
                    assert result.next_offset == store.min_queue_offset("orders", queue.queue_id)
                    assert (await consumer.pull(queue, result.next_offset)).messages

        cluster.run(pull_from_the_former_beginning())


def test_an_operator_deletes_old_segments_of_a_set_at_any_hour() -> None:
    with World(48) as world:
        cluster = cluster_in(world, deleteWhen="03")  # worlds begin at 15 o'clock
        cluster.run(cluster.send_all(bodies(0, 60)))
        world.run_for_ms((KEPT_S + 10) * 1000)
        assert begins(cluster) == [0, 0, 0]
        for node in cluster.brokers:
            for code in (RequestCode.DELETE_EXPIRED_COMMITLOG, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE):
                assert cluster.run(cluster.ask(cluster.app(node).address, code)).code == 0
        old_ones_gone(cluster)


def test_after_a_failover_trimmed_queues_continue_and_the_former_master_rejoins() -> None:
    with World(43) as world:
        cluster = cluster_in(world)
        cluster.run(cluster.send_all(bodies(0, 60)))
        old_ones_gone(cluster)
        cluster.run(cluster.send_all(bodies(60, 10)))
        former = cluster.master
        former.kill()
        world.run_until(lambda: any(node is not former for node in cluster.masters), 30_000)
        cluster.run(cluster.send_all(bodies(70, 10)))
        cluster.start(former)
        cluster.wait_in_sync(3, limit_ms=30_000)
        found = read(cluster)
        assert {b"%08d" % number for number in range(60, 80)} <= set(found)
        newest = [history(cluster, node).last() for node in cluster.brokers]
        assert len(set(newest)) == 1


def test_a_new_replica_starts_at_the_log_start_of_its_master() -> None:
    with World(44) as world:
        cluster = cluster_in(world)
        cluster.run(cluster.send_all(bodies(0, 60)))
        old_ones_gone(cluster)
        cluster.run(cluster.send_all(bodies(60, 10)))
        emptied = cluster.slaves[0]
        emptied.kill()
        emptied.disk.wipe()
        cluster.start(emptied)
        store = cluster.app(cluster.master).store
        world.run_until(
            lambda: (
                isinstance(emptied.app, BrokerApp) and emptied.app.store.max_offset() == store.max_offset()
            ),
            30_000,
        )
        assert cluster.app(emptied).store.min_offset() > 0
        assert history(cluster, emptied).entry_at(cluster.app(emptied).store.min_offset()) is not None
        world.run_for_ms(5_000)
        cluster.master.kill()
        world.run_until(lambda: bool(cluster.masters), 40_000)
        assert {b"%08d" % number for number in range(60, 70)} <= set(read(cluster))


def test_a_slave_behind_the_log_start_of_its_master_logs_that_it_cannot_follow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with World(45) as world, caplog.at_level(logging.INFO):
        cluster = cluster_in(world)
        cluster.run(cluster.send_all(bodies(0, 10)))
        away = cluster.slaves[0]
        end = cluster.app(away).store.max_offset()
        away.kill()
        cluster.run(cluster.send_all(bodies(10, 60)))
        world.run_until(lambda: cluster.app(cluster.master).store.min_offset() > end, 30_000)
        cluster.run(cluster.send_all(bodies(70, 10)))
        cluster.start(away)
        world.run_for_ms(6_000)
        logged = [
            record
            for record in caplog.records
            if record.getMessage() == "this replica cannot follow its master"
        ]
        assert len(logged) == 1 and vars(logged[0])["fields"]["master_min"] > end
        assert cluster.app(away).store.max_offset() == end, "its log is not changed"
        assert cluster.in_sync(2)

        away.kill()
        away.disk.wipe()
        cluster.start(away)
        world.run_until(
            lambda: (
                isinstance(away.app, BrokerApp)
                and away.app.store.max_offset() == cluster.app(cluster.master).store.max_offset()
            ),
            30_000,
        )


def test_a_new_replica_knows_the_ends_of_queues_whose_messages_are_all_deleted() -> None:
    with World(47) as world:
        cluster = cluster_in(world)
        cluster.run(cluster.send_all(bodies(0, 4)))
        ends = [
            cluster.app(cluster.master).store.max_queue_offset("orders", queue_id) for queue_id in range(4)
        ]
        assert sum(ends) >= 4
        cluster.run(fill_another_topic(cluster, 60))
        old_ones_gone(cluster)
        emptied = cluster.slaves[0]
        emptied.kill()
        emptied.disk.wipe()
        cluster.start(emptied)
        world.run_until(
            lambda: (
                isinstance(emptied.app, BrokerApp)
                and emptied.app.membership.broker_id in cluster.app(cluster.master).ha.applied_members()
            ),
            40_000,
        )
        assert ("orders", 0) not in cluster.app(emptied).store.queues()
        emptied.kill()  # it must know the ends after a restart, too
        cluster.start(emptied)
        world.run_for_ms(5_000)
        cluster.run(cluster.designate(cluster.app(emptied).membership.broker_id))
        world.run_until(partial(leads, cluster, emptied), 30_000)
        results = cluster.run(cluster.send_all(bodies(100, 4)))
        assert all(result.queue_offset >= ends[result.queue.queue_id] for result in results)


def test_epochs_of_deleted_segments_are_removed_and_a_restart_uses_the_rest() -> None:
    with World(46) as world:
        cluster = cluster_in(world)
        for number in range(3):
            cluster.run(cluster.send_all(bodies(20 * number, 20)))
            next_master = cluster.slaves[0]
            cluster.run(cluster.designate(cluster.app(next_master).membership.broker_id))
            world.run_until(partial(leads, cluster, next_master), 20_000)
            cluster.wait_in_sync(3, limit_ms=20_000)
        before = len(history(cluster, cluster.master))
        cluster.run(cluster.send_all(bodies(60, 30)))
        old_ones_gone(cluster, 5 * SEGMENT)
        world.run_for_ms(2_000)
        assert all(len(history(cluster, node)) < before for node in cluster.brokers)
        for node in cluster.brokers:
            node.kill()
        for node in cluster.brokers:
            cluster.start(node)
        cluster.wait_in_sync(3, limit_ms=40_000)


def test_a_slave_left_behind_logs_it_once_although_more_segments_are_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with World(46) as world, caplog.at_level(logging.ERROR):
        cluster = cluster_in(world)
        cluster.run(cluster.send_all(bodies(0, 10)))
        away = cluster.slaves[0]
        end = cluster.app(away).store.max_offset()
        away.kill()
        cluster.run(cluster.send_all(bodies(10, 60)))
        world.run_until(lambda: cluster.app(cluster.master).store.min_offset() > end, 30_000)
        cluster.start(away)
        begins_at = set()
        for first in range(70, 170, 20):
            cluster.run(cluster.send_all(bodies(first, 20)))
            world.run_for_ms(4_000)
            begins_at.add(cluster.app(cluster.master).store.min_offset())
        assert len(begins_at) > 2
        assert (
            sum(record.getMessage() == "this replica cannot follow its master" for record in caplog.records)
            == 1
        )
