"""Acknowledged table changes of a Raft-mode set survive every change of leader: locks, topics and deletions.

The tests use emptied members, stale leaders and members of former versions.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

from broker.app import BrokerApp
from broker.neighbours.grouptables import GroupTables
from broker.tables.holders import TablesVersion
from broker.tables.queuelocks import LEASE_MS
from broker.tables.stamp import STAMP_FILE, CopyStamp
from dledger.client import DLedgerClient, Refused
from dledger.raft.errors import NotLeader
from mqclient.errors import LockFailed
from mqclient.queuelocks import TRUST_MS
from mqclient.route import MessageQueue
from raftstore.folder import tables_of
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.admin import CreateTopicHeader, TopicHeader
from remoting.headers.group import CopyTablesHeader, ReadTablesHeader
from simulation.kernel.images import image_of, restore
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.groupset import MEMBERS, GroupSet, started

QUEUES = [MessageQueue("orders", "broker-a", 1)]


@pytest.fixture
def world() -> Iterator[World]:
    with World(41) as world:
        yield world


def locked(group: GroupSet, client_id: str, tries: int = 1) -> bool:
    """Whether the client gets the lock of the queue, once a master answers."""

    async def ask() -> bool:
        async with group.client() as client:
            locks = client.locks("CG", client_id)
            for _ in range(tries):
                with suppress(LockFailed):
                    return bool(await locks.lock(QUEUES))
                await asyncio.sleep(0.5)
        raise AssertionError("no master answers")

    return group.run(ask())


def asked(group: GroupSet, name: str, queues: int) -> int:
    """Creates the topic, or deletes it with 0 queues, and returns the code of the answer."""
    if queues:
        made = CreateTopicHeader(name, "TBW102", queues, queues, 6)
        reply = group.run(
            group.ask(group.app(group.master).address, RequestCode.UPDATE_AND_CREATE_TOPIC, made)
        )
    else:
        reply = group.run(
            group.ask(group.app(group.master).address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(name))
        )
    return reply.code


def queues_of(group: GroupSet, node: Node, name: str) -> int:
    topic = group.app(node).tables.topics.find(name)
    return 0 if topic is None else topic.write_queue_nums


@pytest.mark.parametrize("seed", [23, 24, 25])
def test_a_queue_lock_survives_a_leader_that_was_away_when_it_was_taken(seed: int) -> None:
    """Tables are not in the log that decides whether a member can be elected."""
    with World(seed) as world:
        group = started(world)
        leader = group.master
        away, other = group.slaves
        away.kill()
        world.run_for_ms(5_000)
        trusted_until_ms = world.now_ms + TRUST_MS
        assert locked(group, "a")
        leader.kill()
        other.kill()
        group.start(away)
        group.start(other)
        group.wait_for_master()
        led_ms = world.now_ms
        assert not locked(group, "b", 10)
        assert world.now_ms < led_ms + 2_000  # no leader delays its answers
        assert locked(group, "a")
        while not locked(group, "b"):
            world.run_for_ms(500)
        assert led_ms + LEASE_MS < world.now_ms > trusted_until_ms


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_member_that_was_away_leads_with_topics_created_and_deleted_meanwhile(seed: int) -> None:
    with World(seed) as world:
        group = started(world)
        assert asked(group, "gone", 3) == ResponseCode.SUCCESS
        world.run_for_ms(3_000)
        leader = group.master
        away, other = group.slaves
        away.kill()
        world.run_for_ms(3_000)
        assert asked(group, "gone", 0) == asked(group, "made", 5) == ResponseCode.SUCCESS
        leader.kill()
        other.kill()
        group.start(away)
        group.start(other)
        group.wait_for_master()
        assert [queues_of(group, group.master, name) for name in ("gone", "made")] == [0, 5]
        group.start(leader)
        world.run_for_ms(3_000)
        assert [[queues_of(group, node, name) for name in ("gone", "made")] for node in group.brokers] == [
            [0, 5]
        ] * 3


def test_a_table_change_is_not_acknowledged_before_a_majority_holds_it(world: World) -> None:
    group = started(world)
    for node in group.slaves:
        takes_no_tables(node)
    assert asked(group, "made", 5) == ResponseCode.FLUSH_SLAVE_TIMEOUT
    for node in group.slaves:
        node.disk.mend()
    world.run_for_ms(10_000)
    assert asked(group, "made", 5) == ResponseCode.SUCCESS


def takes_no_tables(node: Node) -> None:
    """Fails writes of tables, like a full disk."""
    for operation in ("append", "replace"):
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        node.disk.fail_next(operation, full, where="config/", times=10_000)


def test_one_slow_member_delays_no_answer(world: World) -> None:
    group = started(world)
    slow = group.slaves[0]
    slow.disk.stall(20_000)
    before_ms = world.now_ms
    assert asked(group, "made", 5) == ResponseCode.SUCCESS
    assert world.now_ms < before_ms + 500


@pytest.mark.parametrize("is_set_back", [False, True], ids=["emptied", "set back"])
def test_a_member_whose_disk_lost_its_tables_does_not_count_for_them(is_set_back: bool, world: World) -> None:
    """It votes once its log caught up, and counts for tables once it has a copy."""
    group = started(world)
    leader = group.master
    away, emptied = group.slaves
    away.kill()
    image = image_of(emptied.disk)
    world.run_for_ms(6_000)
    assert asked(group, "made", 5) == ResponseCode.SUCCESS
    emptied.kill()
    if is_set_back:
        restore(emptied.disk, image)
    else:
        emptied.disk.wipe()
    group.start(emptied)
    world.run_until(lambda: emptied.running and emptied.app is not None, 5_000)
    app = group.app(emptied)
    app._neighbours.facts._fence = NoCopies()
    group.start(away)
    member = app.store._member
    world.run_until(lambda: member.counts, 20_000)
    leader.kill()
    away.kill()
    group.start(away)
    world.run_for_ms(20_000)
    assert member.leader_id in ("n0", "n1", "n2") and not group.masters
    assert app.tables.stamp.version is None
    group.start(leader)
    group.wait_for_master()
    assert queues_of(group, group.master, "made") == 5


class NoCopies:
    """Accepts no copy, like a member with a full disk."""

    def may_take(self, version: TablesVersion) -> bool:
        return False

    def may_report(self, version: TablesVersion) -> bool:
        return False


def test_a_late_copy_of_an_older_leaders_tables_is_refused(world: World) -> None:
    group = started(world)
    world.run_for_ms(3_000)
    app = group.app(group.slaves[0])
    version, fence, core = app.tables.stamp.version, app._neighbours.facts._fence, app.store._member.node.core
    assert version is not None and isinstance(fence, GroupTables)
    assert fence.may_take(version) and fence.may_report(version)
    assert not fence.may_take(version._replace(revision=version.revision - 1))  # the version never decreases
    later = version._replace(revision=version.revision + 1)
    core.term += 1  # another member requested its vote
    assert not fence.may_take(later) and not fence.may_report(version)
    core.term -= 1
    assert fence.may_take(later)
    term_file = app.store._member.node.store.term_file
    term_file.term -= (
        1  # after a power cut now the member would follow the previous leader and take its copies
    )
    assert not fence.may_report(version)
    term_file.term += 1
    assert fence.may_report(version)


def test_a_stranger_cannot_report_tables_for_a_member(world: World) -> None:
    group = started(world)
    leader, (away, full) = group.master, group.slaves
    full.disk.capacity_bytes = full.disk.used_bytes()
    away.kill()
    world.run_for_ms(3_000)
    app, ids = group.app(leader), [group.brokers.index(node) + 1 for node in (away, full)]
    codes: list[int] = []

    async def claim() -> None:
        async with group.client() as client:
            while not codes:
                for broker_id in ids:
                    header = CopyTablesHeader(broker_id, str(app.tables.version), 0)
                    request = RemotingCommand.request(RequestCode.COPY_TABLES, header)
                    reply = await client.remoting.call(app.address, request, 1_000)
                    assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
                await asyncio.sleep(0.05)

    async def make() -> None:
        made = CreateTopicHeader("made", "TBW102", 5, 5, 6)
        codes.append((await group.ask(app.address, RequestCode.UPDATE_AND_CREATE_TOPIC, made)).code)

    async def both() -> None:
        await asyncio.gather(claim(), make())

    group.run(both())
    assert codes == [ResponseCode.FLUSH_SLAVE_TIMEOUT]


def test_a_member_answers_only_the_leader_of_the_term_on_its_disk(world: World) -> None:
    group = started(world)
    node = group.slaves[0]
    member = group.app(node).store._member

    def code(term: int, group_name: str | None = None, name: str | None = None) -> int:
        header = ReadTablesHeader(term, None, group_name, name)
        request = RemotingCommand.request(RequestCode.READ_TABLES, header)

        async def ask() -> int:
            async with group.client() as client:
                return (await client.remoting.call(f"{node.host}:40911", request, 1_000)).code

        return group.run(ask())

    assert code(member.term) == code(member.term, "broker-a", member.self_id) == ResponseCode.SUCCESS
    for of_another in (("broker-b", member.self_id), ("broker-a", "n7")):
        assert code(member.term, *of_another) == ResponseCode.SERVICE_NOT_AVAILABLE
    assert code(member.term - 1) == code(member.term + 1) == ResponseCode.SERVICE_NOT_AVAILABLE
    member.node.store.term_file.term -= 1  # the term is not on the disk yet
    assert code(member.term) == ResponseCode.SERVICE_NOT_AVAILABLE
    member.node.store.term_file.term += 1


def test_table_versions_are_stored_and_tables_without_one_count_as_oldest(world: World) -> None:
    """A former version of this project wrote no table version."""
    group = started(world)
    assert asked(group, "made", 5) == ResponseCode.SUCCESS
    world.run_for_ms(8_000)  # afterwards the journal is merged into the files of the tables
    leader = group.master
    for node in group.brokers:
        version = group.app(node).tables.stamp.version
        node.kill()
        stamp = orjson.loads(node.disk.content(STAMP_FILE) or b"")
        assert stamp["tablesVersion"] == str(version) and "config/topics.json" in stamp["files"].split(";")
    former = next(node for node in group.brokers if node is not leader)
    former.disk.drop(STAMP_FILE)
    former.disk.drop("config/topics.json")
    former.disk.put("config/topics.json", b'{"dataVersion":{"counter":1},"topicConfigTable":{}}')
    for node in group.brokers:
        group.start(node)
    world.run_until(lambda: all(isinstance(node.app, BrokerApp) for node in group.brokers), 5_000)
    group.wait_for_master()
    world.run_for_ms(3_000)
    assert [queues_of(group, node, "made") for node in group.brokers] == [5, 5, 5]


@pytest.mark.parametrize(
    ("lost", "left"),
    [
        ("config/topics.json", {}),
        ("config/topics.json", {"": b"rot", ".bak": b'{"dataVersion":{},"topicConfigTable":{}}'}),
        (STAMP_FILE, {"": b"rot"}),
    ],
)
def test_a_member_that_lost_a_file_of_its_tables_leads_with_those_of_the_others(
    lost: str, left: dict[str, bytes], world: World
) -> None:
    """An operator removes a file that does not parse; the remaining tables have the newest version."""
    group = started(world, preferredLeaderIds="n0")
    away, other = group.brokers[1:]
    away.kill()
    world.run_for_ms(3_000)
    assert asked(group, "made", 5) == ResponseCode.SUCCESS
    assert locked(group, "a")
    world.run_for_ms(3_000)
    for node in (group.brokers[0], other):
        node.kill()
    group.brokers[0].disk.drop(lost)
    for suffix, content in left.items():
        group.brokers[0].disk.put(lost + suffix, content)
    for node in group.brokers:
        group.start(node)
    group.wait_for_master()
    world.run_until(lambda: group.master is group.brokers[0], 20_000)
    world.run_for_ms(3_000)
    assert [queues_of(group, node, "made") for node in group.brokers] == [5, 5, 5]


def test_among_members_of_a_former_version_a_leader_uses_its_own_tables(world: World) -> None:
    group = GroupSet(world)
    world.run_until(lambda: all(node.running and node.app is not None for node in group.brokers), 5_000)
    for node in group.brokers[1:]:
        group.app(node).store._member.router.handlers.pop(RequestCode.READ_TABLES)
    group.start_up()
    assert asked(group, "made", 5) == ResponseCode.SUCCESS


def test_a_voter_is_removed_only_once_a_majority_holds_the_tables(world: World) -> None:
    group = started(world)
    gone, stays = group.slaves
    full = stays.disk
    assert asked(group, "made", 5) == ResponseCode.SUCCESS
    gone.kill()
    takes_no_tables(stays)
    assert asked(group, "later", 5) == ResponseCode.FLUSH_SLAVE_TIMEOUT
    with pytest.raises(Refused, match="must have the leader's tables first"):
        removed(group, gone)
    full.mend()
    world.run_for_ms(10_000)
    removed(group, gone)
    assert asked(group, "later", 5) == ResponseCode.SUCCESS


def removed(group: GroupSet, node: Node) -> None:
    async def remove() -> None:
        async with group.client() as client:
            operator = DLedgerClient(MEMBERS, "broker-a", client.remoting, timeout_ms=3_000)
            await operator.remove(f"n{group.brokers.index(node)}")

    group.run(remove())


def test_a_former_leader_assigns_no_version_of_the_next_term() -> None:
    """Such a version would count as newer than the versions that leaders of that term assigned."""
    changes: list[TablesVersion | None] = []
    stamp = CopyStamp(lambda: changes.append(stamp.version))
    stamp.led(TablesVersion(3, 7))
    stamp.changed(TablesVersion(3, 8))
    stamp.leads_no_more()
    stamp.changed(TablesVersion(5, 9))
    assert stamp.version == changes[-1] == TablesVersion(3, 8)
    stamp.took(TablesVersion(5, 2))
    stamp.changed(TablesVersion(5, 10))
    assert stamp.version == TablesVersion(5, 2)
    assert not stamp.may_take(TablesVersion(5, 1)) and not stamp.may_take(TablesVersion(4, 99))
    again = CopyStamp(lambda: None)
    again.decode(stamp.encode())
    assert again.version == stamp.version


def test_a_table_version_of_another_group_is_ignored(world: World) -> None:
    group = started(world)
    world.run_for_ms(3_000)
    for node in group.brokers:
        node.kill()
    copied, *rest = group.brokers
    copied.disk.put(STAMP_FILE, b'{"tablesVersion":"999.1"}')
    copied.disk.put("config/topics.json", b'{"dataVersion":{"counter":1},"topicConfigTable":{}}')
    for node in group.brokers:
        group.start(node)
    group.wait_for_master()
    world.run_for_ms(3_000)
    assert [queues_of(group, node, "orders") for node in group.brokers] == [4, 4, 4]
    assert {group.app(node).tables.stamp.version for node in group.brokers} == {
        group.app(rest[0]).tables.stamp.version
    }


def test_the_version_stamp_is_not_among_the_tables_to_copy(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    for name in ("topics.json", STAMP_FILE.rpartition("/")[2]):
        (config / name).write_bytes(b"{}")
    assert list(tables_of(tmp_path)) == ["config/topics.json"]


def test_a_leader_renews_locks_only_after_a_recent_quorum_confirmation(world: World) -> None:
    """A leader that was paused may have been replaced without noticing it."""
    group = started(world)
    assert locked(group, "a")
    member = group.app(group.master).store._member
    asked_ms: list[int] = []

    async def is_followed(timeout_ms: int) -> None:
        asked_ms.append(world.now_ms)

    async def is_not(timeout_ms: int) -> None:
        raise NotLeader(None, None)

    member.node.read_barrier = is_followed
    for _ in range(12):
        assert locked(group, "a")
        world.run_for_ms(5_000)
    assert len(asked_ms) == 2
    member.node.read_barrier = is_not
    world.run_for_ms(20_000)
    with pytest.raises(AssertionError, match="no master answers"):
        locked(group, "a")
