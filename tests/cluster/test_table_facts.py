"""Acknowledged changes of topics and groups survive kills, absences and disk failures, on virtual time."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from typing import Any

import pytest

from broker.app import BrokerApp
from broker.neighbours import slavesync
from broker.neighbours.tablecopy import TableCopy
from broker.tables.consumeroffsets import CONSUMER_OFFSETS_FILE
from broker.tables.journal import FILE as JOURNAL
from broker.tables.topics import TOPICS_FILE
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.admin import CreateTopicHeader, DeleteSubscriptionGroupHeader, TopicHeader
from remoting.headers.group import SlaveHeader
from remoting.headers.offsets import UpdateConsumerOffsetHeader
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.brokerset import CONTROLLERS, Cluster

SLOW_MS = 700
COPIED_MS = 3_000
WRITTEN_MS = 6_000
"""After this time the journal is merged into the files of the tables."""


class Facts:
    """A set of `brokers`, and an administrator's requests to its master."""

    def __init__(self, world: World, brokers: int = 3, **settings: Any) -> None:
        self.world = world
        self.cluster = Cluster(world, brokers, **settings)
        self.cluster.start_up()

    @property
    def master(self) -> Node:
        return self.cluster.master

    def ask(
        self, code: int, header: Any = None, body: bytes | None = None, *, at: Node | None = None
    ) -> RemotingCommand:
        app = self.cluster.app(at or self.master)
        reply: RemotingCommand = self.cluster.run(self.cluster.ask(app.address, code, header, body))
        return reply

    def create(self, topic: str, queues: int = 4, **where: Any) -> RemotingCommand:
        header = CreateTopicHeader(topic, "TBW102", queues, queues, 6)
        return self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header, **where)

    def delete(self, topic: str, **where: Any) -> RemotingCommand:
        return self.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic), **where)

    def create_group(self, group: str) -> RemotingCommand:
        body = SubscriptionGroupConfig(group).encode()
        return self.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)

    def delete_group(self, group: str, *, clean: bool = True) -> RemotingCommand:
        header = DeleteSubscriptionGroupHeader(group, clean_offset=clean)
        return self.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    def commit(self, group: str, offset: int) -> None:
        header = UpdateConsumerOffsetHeader(group, "orders", 1, offset)
        assert self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header).code == 0

    def send(self, topic: str) -> None:
        async def sent() -> None:
            async with self.cluster.client() as client:
                await client.producer("PG").send(topic, b"one", queue_id=1)

        self.cluster.run(sent())

    def fail_over(self) -> Node:
        """Kills the master, waits for the next one, and returns the former master."""
        former = self.master
        former.kill()
        self.cluster.wait_in_sync(len(self.cluster.brokers) - 1, 30_000)
        return former

    def topics(self, node: Node | None = None) -> Any:
        return self.cluster.app(node or self.master).tables.topics

    def groups(self, node: Node | None = None) -> Any:
        return self.cluster.app(node or self.master).tables.groups

    def offset(self, group: str, node: Node | None = None) -> int | None:
        return self.cluster.app(node or self.master).tables.offsets.find(group, "orders", 1)


@pytest.fixture
def facts() -> Iterator[Facts]:
    with World(71) as world:
        yield Facts(world)


def is_on_disk(node: Node, name: bytes) -> bool:
    """Whether the name is in the table's own file, or in the journal of changes."""
    files = [TOPICS_FILE, *(path for path in node.disk.entries if path.startswith(JOURNAL))]
    return any(name in (node.disk.content(path) or b"") for path in files)


def slow_links(facts: Facts) -> None:
    for slave in facts.cluster.slaves:
        facts.world.network.delay(facts.master.host, slave.host, SLOW_MS, SLOW_MS + 1)


# -- created


def test_an_acknowledged_topic_and_group_survive_the_death_of_the_master(
    facts: Facts,
) -> None:
    slow_links(facts)
    assert facts.create("invoices", 7).code == 0
    assert facts.create_group("CG").code == 0
    facts.world.network.usual_delays()
    facts.fail_over()
    found = facts.topics().find("invoices")
    assert found is not None and found.read_queue_nums == 7
    assert facts.groups().find("CG") is not None


def test_a_topic_is_on_the_disk_of_every_member_when_it_is_acknowledged(facts: Facts) -> None:
    assert facts.create("invoices").code == 0
    for node in facts.cluster.brokers:
        assert is_on_disk(node, b"invoices"), node.name


def test_name_servers_route_a_topic_of_a_dead_master_to_the_next(facts: Facts) -> None:
    assert facts.create("invoices").code == 0
    facts.fail_over()
    facts.world.run_for_ms(500)
    facts.send("invoices")


def test_a_topic_creation_fails_with_the_id_of_a_member_that_does_not_store_it(facts: Facts) -> None:
    slave = facts.cluster.slaves[0]
    for operation in ("append", "replace"):
        slave.disk.fail_next(operation, OSError(errno.EIO, os.strerror(errno.EIO)), times=1_000)
    slave_id = facts.cluster.app(slave).membership.broker_id
    reply = facts.create("invoices")
    assert reply.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert f"not yet on broker {slave_id} " in (reply.remark or "")
    slave.disk.mend()


def test_a_topic_creation_fails_on_a_full_disk(facts: Facts) -> None:
    facts.master.disk.capacity_bytes = facts.master.disk.used_bytes()
    reply = facts.create("invoices")
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "disk" in (reply.remark or "")
    facts.master.disk.capacity_bytes = None
    assert facts.create("invoices").code == 0
    assert is_on_disk(facts.master, b"invoices")


@pytest.mark.parametrize("whose", ["master", "slave"])
def test_a_topic_creation_times_out_on_a_hanging_disk(facts: Facts, whose: str) -> None:
    node = facts.master if whose == "master" else facts.cluster.slaves[0]
    node.disk.stall(4_000)
    began_ms = facts.world.now_ms
    reply = facts.create("invoices")
    expected = ResponseCode.SYSTEM_ERROR if whose == "master" else ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert (reply.code, "after 2000 ms" in (reply.remark or "")) == (expected, True)
    assert facts.world.now_ms - began_ms < 2_500
    facts.world.run_for_ms(4_000)
    assert facts.create("invoices").code == 0


def test_a_slave_refuses_to_create_a_topic(facts: Facts) -> None:
    slave = facts.cluster.slaves[0]
    reply = facts.create("invoices", at=slave)
    assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert facts.cluster.app(facts.master).address in (reply.remark or "")
    assert facts.topics(slave).find("invoices") is None


def test_a_slave_forwards_the_deletion_of_a_topic_to_its_master(facts: Facts) -> None:
    """Java's deleteSubGroup sends to slaves too, in any order, and stops at the first refusal."""
    slave = facts.cluster.slaves[0]
    assert facts.create("invoices").code == 0
    for _ in range(2):
        assert facts.delete("invoices", at=slave).code == 0
        assert [facts.topics(node).find("invoices") for node in (facts.master, slave)] == [None, None]
    reply = facts.delete("TBW102", at=slave)
    assert (reply.code, reply.remark) == (
        ResponseCode.INVALID_PARAMETER,
        "The topic[TBW102] is conflict with system topic.",
    )


def test_a_slave_whose_master_does_not_answer_deletes_nothing(facts: Facts) -> None:
    slave = facts.cluster.slaves[0]
    assert facts.create("invoices").code == 0
    facts.master.kill()
    reply = facts.delete("invoices", at=slave)
    assert (reply.code, "ask 10.0." in (reply.remark or "")) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
    assert facts.topics(slave).find("invoices") is not None


def test_a_slave_does_not_forward_a_forwarded_deletion(facts: Facts) -> None:
    """Two slaves that take each other for the master would forward the request forever."""
    assert facts.create("invoices").code == 0
    passed = {"topic": "invoices", "passedOn": "true"}
    reply = facts.ask(RequestCode.DELETE_TOPIC_IN_BROKER, passed, at=facts.cluster.slaves[0])
    assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert facts.topics().find("invoices") is not None


def test_a_member_that_was_away_enters_the_set_with_the_tables(facts: Facts) -> None:
    away = facts.cluster.slaves[0]
    away.kill()
    facts.cluster.wait_in_sync(2, 60_000)
    assert facts.create("invoices").code == 0
    facts.cluster.start(away)
    facts.cluster.wait_in_sync(3, 30_000)
    assert b"invoices" in (away.disk.content(TOPICS_FILE) or b"")


def test_a_pending_expansion_by_a_dead_member_without_the_tables_is_resolved(facts: Facts) -> None:
    """The answer to its expansion was lost, and it is missing a topic that was created later.

    Nothing is acknowledged while the outcome is open, so the master repeats the alter, which is refused.
    """
    cluster, world = facts.cluster, facts.world
    away = facts.cluster.slaves[0]
    away.kill()
    cluster.wait_in_sync(2, 60_000)
    master = facts.master
    ha = cluster.app(master).ha
    controllers = [world.nodes[f"controller-{number}"] for number in range(len(CONTROLLERS))]
    for controller in controllers:
        world.network.delay(master.host, controller.host, SLOW_MS, SLOW_MS + 1)
    cluster.start(away)
    world.run_until(lambda: len(ha.counted_members()) == 3, 30_000)
    world.run_for_ms(SLOW_MS // 2)
    for node in (away, *controllers):
        node.kill()
    assert facts.create("invoices").code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    world.network.usual_delays()
    cluster.start_controllers()
    world.run_until(lambda: len(ha.counted_members()) == 2, 30_000)
    assert facts.master is master and facts.create("receipts").code == 0
    facts.send("receipts")


# -- deleted


def test_a_deleted_topic_with_messages_in_the_log_stays_deleted_under_the_next_master(
    facts: Facts,
) -> None:
    assert facts.create("invoices").code == 0
    facts.send("invoices")
    assert facts.delete("invoices").code == 0
    facts.fail_over()
    assert facts.topics().find("invoices") is None
    facts.world.run_for_ms(COPIED_MS)
    assert [facts.topics(node).find("invoices") for node in facts.cluster.slaves if node.running] == [None]


def test_a_deleted_topic_stays_deleted_when_all_brokers_restart(facts: Facts) -> None:
    assert facts.create("invoices").code == 0
    facts.send("invoices")
    assert facts.delete("invoices").code == 0
    for node in facts.cluster.brokers:
        node.kill(power_cut=True)
    for node in facts.cluster.brokers:
        facts.cluster.start(node)
    facts.cluster.wait_in_sync(3, 60_000)
    assert facts.topics().find("invoices") is None


def test_a_deleted_groups_offsets_do_not_come_back_with_the_next_master(facts: Facts) -> None:
    assert facts.create_group("CG").code == 0
    facts.commit("CG", 2)
    facts.world.run_for_ms(COPIED_MS)
    assert [facts.offset("CG", node) for node in facts.cluster.brokers] == [2, 2, 2]
    assert facts.delete_group("CG").code == 0
    facts.fail_over()
    assert (facts.groups().find("CG"), facts.offset("CG")) == (None, None)


def test_a_deleted_groups_offsets_do_not_come_back_from_a_file(facts: Facts) -> None:
    assert facts.create_group("CG").code == 0
    facts.commit("CG", 2)
    facts.world.run_for_ms(10_000)  # until it is on the disks of all brokers
    assert b"CG" in (facts.master.disk.content(CONSUMER_OFFSETS_FILE) or b"")
    assert facts.delete_group("CG").code == 0
    for node in facts.cluster.brokers:
        node.kill(power_cut=True)
    for node in facts.cluster.brokers:
        facts.cluster.start(node)
    facts.cluster.wait_in_sync(3, 60_000)
    facts.world.run_for_ms(COPIED_MS)
    assert [facts.offset("CG", node) for node in facts.cluster.brokers] == [None, None, None]


def test_a_slave_that_was_away_brings_no_deleted_offsets_back(facts: Facts) -> None:
    facts.commit("CG", 2)
    facts.world.run_for_ms(10_000)
    away = facts.cluster.slaves[0]
    away.kill()
    facts.cluster.wait_in_sync(2, 60_000)
    assert facts.delete_group("CG").code == 0
    facts.cluster.start(away)
    facts.cluster.wait_in_sync(3, 60_000)
    assert facts.offset("CG", away) is None


def test_a_deletion_without_clean_offset_keeps_the_offsets(facts: Facts) -> None:
    facts.commit("CG", 2)
    facts.world.run_for_ms(COPIED_MS)
    assert facts.delete_group("CG", clean=False).code == 0
    facts.fail_over()
    assert facts.offset("CG") == 2


def test_a_commit_after_the_deletion_survives_a_failover(facts: Facts) -> None:
    facts.commit("CG", 2)
    facts.world.run_for_ms(COPIED_MS)
    assert facts.delete_group("CG").code == 0
    facts.commit("CG", 3)
    facts.world.run_for_ms(COPIED_MS)
    facts.fail_over()
    assert facts.offset("CG") == 3


def test_many_concurrent_topic_creations_all_succeed(facts: Facts) -> None:
    async def all_of_them() -> list[int]:
        async with facts.cluster.client() as client:
            address = facts.cluster.app(facts.master).address
            asked = [
                client.remoting.call(
                    address,
                    RemotingCommand.request(
                        RequestCode.UPDATE_AND_CREATE_TOPIC,
                        CreateTopicHeader(f"topic-{number}", "TBW102", 1, 1, 6),
                    ),
                )
                for number in range(50)
            ]
            return [reply.code for reply in await asyncio.gather(*asked)]

    assert set(facts.cluster.run(all_of_them())) == {0}
    assert all(facts.topics(node).find("topic-49") for node in facts.cluster.brokers)


# -- crashes


@pytest.mark.parametrize("after_ms", [1, 2, 3, 4, 5, 7, 10, 15])
def test_a_power_loss_during_a_deletion_loses_no_acknowledged_deletion(facts: Facts, after_ms: int) -> None:
    assert facts.create("invoices").code == 0
    facts.commit("CG", 2)
    facts.world.run_for_ms(10_000)
    assert b"CG" in (facts.cluster.slaves[0].disk.content(CONSUMER_OFFSETS_FILE) or b"")
    victim = facts.cluster.slaves[0]

    async def dies() -> None:
        await asyncio.sleep(after_ms / 1000)
        victim.kill(power_cut=True)

    async def deleted() -> None:
        dying = asyncio.ensure_future(dies())
        async with facts.cluster.client() as client:
            address = facts.cluster.app(facts.master).address
            for code, header in (
                (
                    RequestCode.DELETE_SUBSCRIPTIONGROUP,
                    DeleteSubscriptionGroupHeader("CG", clean_offset=True),
                ),
                (RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader("invoices")),
            ):
                while True:
                    reply = await client.remoting.call(address, RemotingCommand.request(code, header))
                    if reply.code == 0:
                        break
                    await asyncio.sleep(0.1)
        await dying

    facts.cluster.run(deleted())
    facts.cluster.start(victim)
    facts.cluster.wait_in_sync(3, 60_000)
    facts.world.run_for_ms(COPIED_MS + WRITTEN_MS)
    assert facts.offset("CG", victim) is None
    assert facts.topics(victim).find("invoices") is None
    assert b"CG" not in (victim.disk.content(CONSUMER_OFFSETS_FILE) or b"")


@pytest.mark.parametrize("after_ms", [1, 2, 3, 4, 5, 7, 10, 15])
def test_a_master_that_loses_power_during_a_topic_creation_restarts_with_readable_tables(
    facts: Facts, after_ms: int
) -> None:
    master, address = facts.master, facts.cluster.app(facts.master).address

    async def asked() -> None:
        async with facts.cluster.client() as client:
            header = CreateTopicHeader("invoices", "TBW102", 4, 4, 6)
            request = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            asking = asyncio.ensure_future(client.remoting.call(address, request))
            await asyncio.sleep(after_ms / 1000)
            master.kill(power_cut=True)
            answered = (await asyncio.gather(asking, return_exceptions=True))[0]
            known.append(isinstance(answered, RemotingCommand) and answered.code == 0)

    known: list[bool] = []
    facts.cluster.run(asked())
    facts.cluster.start(master)
    facts.cluster.wait_in_sync(3, 60_000)
    facts.world.run_for_ms(COPIED_MS)
    there = [facts.topics(node).find("invoices") is not None for node in facts.cluster.brokers]
    assert len(set(there)) == 1
    assert there[0] or not known[0]


# -- brokers without this request


def test_a_master_without_copy_tables_support_is_polled() -> None:
    with World(72) as world:
        cluster = Cluster(world, 2, minInSyncReplicas=1)
        for node in cluster.brokers:
            world.run_until(lambda node=node: isinstance(node.app, BrokerApp), 100)  # type: ignore[misc]
            cluster.app(node).requests.router.handlers.pop(RequestCode.COPY_TABLES)
        cluster.wait_in_sync(1)
        world.run_for_ms(2_000)
        cluster.app(cluster.master).tables.topics.ensure("invoices", 3)
        cluster.app(cluster.master).tables.groups.find_or_create("CG")
        world.run_for_ms(2_000)
        slave = cluster.slaves[0]
        assert cluster.app(slave).tables.topics.find("invoices") is not None
        assert cluster.app(slave).tables.groups.find("CG") is not None


def test_a_slave_that_copies_like_upstream_enters_the_set_and_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TableCopy, "master_is_old", property(lambda self: True))
    monkeypatch.setattr(slavesync, "SlaveHeader", lambda broker_id: SlaveHeader(None))
    with World(73) as world:
        facts = Facts(world, 2, slaveSyncInterval=3_000)
        assert facts.create("invoices").code == 0
        assert facts.topics(facts.cluster.slaves[0]).find("invoices") is None
        world.run_for_ms(4_000)
        assert facts.topics(facts.cluster.slaves[0]).find("invoices") is not None
