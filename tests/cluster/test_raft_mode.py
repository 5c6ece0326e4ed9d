"""Raft mode: a set whose log is a DLedger log, from the first election to restarts and failovers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext

import orjson
import pytest

from broker.role.membership import ReplicaRole
from dledger.client import DLedgerClient, Refused
from messagestore.record import decode
from messagestore.store.brokerstore import BrokerStore
from remoting.bodies.epochs import EpochCache, EpochSpan
from remoting.bodies.routes import KVTable
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.offsets import ResetOffsetHeader
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.groupset import MEMBERS, GroupSet, shows, started
from tests.support.sendbacks import heartbeat, read, send_back, wait_for


@pytest.fixture
def world() -> Iterator[World]:
    with World(17) as world:
        yield world


def messages(name: str, count: int) -> list[bytes]:
    return [b"%s %d " % (name.encode(), number) + b"x" * (number * 37 % 500) for number in range(count)]


def test_acknowledged_messages_are_read_from_every_leader(world: World) -> None:
    group = started(world)
    sent = messages("first", 40)
    group.run(group.send_all(sent))
    assert group.bodies() == sorted(sent)
    former = group.master
    former.kill()
    group.wait_for_master()
    assert group.master is not former
    sent += messages("later", 40)
    group.run(group.send_all(sent[40:]))
    group.start(former)
    group.world.run_until(group.caught_up, 20_000)
    group.world.run_until(lambda: group.app(former).membership.role is ReplicaRole.SLAVE, 5_000)
    group.master.kill()
    group.wait_for_master()
    assert group.bodies() == sorted(sent)


def test_sent_back_messages_and_offset_resets_survive_the_leader_that_answered(world: World) -> None:
    group = started(world)
    sent = messages("bad", 8)
    group.run(group.send_all(sent))
    former = group.master

    async def hand_back_and_move() -> None:
        address = group.app(former).address
        async with group.client() as client:
            call = client.remoting.call
            assert (await call(address, heartbeat("CG"))).code == 0
            failed = await read(client, "orders")
            answers = await asyncio.gather(*(call(address, send_back("CG", each, -1)) for each in failed))
            assert [answer.code for answer in answers] == [0] * len(sent)
            header = ResetOffsetHeader("orders", "CG", 0, queue_id=1, offset=1)
            question = RemotingCommand.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            moved = await call(address, question)
            assert moved.code == 0, moved.remark

    async def given_up() -> list[bytes]:
        async with group.client() as client:
            return [message.body for message in await wait_for(client, "%DLQ%CG", len(sent))]

    group.run(hand_back_and_move())
    former.kill()
    group.wait_for_master()
    assert sorted(group.run(given_up())) == sorted(sent)
    assert group.app(group.master).tables.offsets.find("CG", "orders", 1) == 1


def test_all_members_hold_the_same_bytes_and_queues(world: World) -> None:
    group = started(world)
    group.run(group.send_all(messages("some", 300)))  # several files
    group.world.run_until(group.caught_up, 20_000)
    stores = [group.app(node).store for node in group.brokers]
    assert stores[0].confirm_offset() > 2 * stores[0].segment_size_bytes
    for store in stores[1:]:
        assert store.queues() == stores[0].queues()
        for topic, queue_id in store.queues():
            assert store.entries(topic, queue_id, 0, 500) == stores[0].entries(topic, queue_id, 0, 500)

    async def read(store: BrokerStore) -> list[tuple[int, bytes]]:
        results = [store.get("orders", queue_id, 0, 500, 1 << 20) for queue_id in range(4)]
        for result in results:
            await store.load(result)
        return [(result.count, b"".join(result.buffers)) for result in results]

    first, *others = (group.run(read(store)) for store in stores)
    assert sum(count for count, _ in first) == 300
    assert others == [first, first]


def test_no_message_is_lost_when_all_members_are_stopped_or_killed_and_restarted(world: World) -> None:
    group = started(world)
    sent = messages("before", 60)
    group.run(group.send_all(sent))
    for graceful in (True, False):
        for node in group.brokers:
            if graceful:
                group.world.run(node.stop())
            else:
                node.kill()
        for node in group.brokers:
            group.start(node)
        group.wait_for_master()
        assert group.bodies() == sorted(sent)
        more = messages(f"after {graceful}", 20)
        group.run(group.send_all(more))
        sent += more
    assert group.bodies() == sorted(sent)
    assert all(group.app(node).store.queue_offset_skips() == 0 for node in group.brokers)


def test_a_leader_without_a_majority_acknowledges_nothing(world: World) -> None:
    group = started(world)
    master = group.app(group.master)
    others = group.slaves
    for node in others:
        node.kill()
    end = master.store.confirm_offset()
    group.world.run_for_ms(10_000)
    assert master.acknowledgement.acked_end() == 0
    assert master.store.confirm_offset() == end
    reply = group.run(group.ask(master.address, RequestCode.GET_BROKER_RUNTIME_INFO))
    assert reply.code == 0


def test_a_stopping_leader_hands_over_without_a_failed_send(world: World) -> None:
    group = started(world)
    former = group.master

    async def scenario() -> int:
        sending = asyncio.create_task(group.refusals_of(messages("under way", 200)))
        await asyncio.sleep(0.2)
        stopping = asyncio.create_task(former.stop())
        refused = await sending
        await stopping
        return refused

    assert group.run(scenario()) == 0
    assert group.master is not former
    assert group.bodies() == sorted(messages("under way", 200))


@pytest.mark.parametrize("target_lives", [True, False])
def test_a_leadership_transfer_by_an_operator_fails_no_send(world: World, target_lives: bool) -> None:
    group = started(world)
    former = group.master
    target = next(node for node in group.brokers if node is not former)
    if not target_lives:
        target.kill()

    async def scenario() -> int:
        sending = asyncio.create_task(group.refusals_of(messages("under way", 200)))
        await asyncio.sleep(0.2)
        async with group.client() as client:
            operator = DLedgerClient(MEMBERS, "broker-a", client.remoting, timeout_ms=3_000)
            with nullcontext() if target_lives else pytest.raises(Refused):
                await operator.transfer(f"n{group.brokers.index(target)}")
        return await sending

    assert group.run(scenario()) == 0
    assert (group.master is former) != target_lives
    assert group.bodies() == sorted(messages("under way", 200))


def test_the_preferred_member_leads_once_it_caught_up(world: World) -> None:
    group = started(world, preferredLeaderIds="n2")
    preferred = group.brokers[2]
    world.run_until(lambda: group.masters == [preferred], 20_000)
    preferred.kill()
    group.wait_for_master()
    sent = messages("meanwhile", 50)
    group.run(group.send_all(sent))
    group.start(preferred)
    world.run_until(lambda: group.masters == [preferred], 20_000)
    world.run_for_ms(500)
    assert group.bodies() == sorted(sent)


def test_a_member_that_was_away_starts_behind_the_log_that_retention_deleted(world: World) -> None:
    group = started(
        world,
        fileReservedSeconds=5,
        deleteWhen=";".join(f"{hour:02d}" for hour in range(24)),
        cleanResourceInterval=500,
    )
    away = group.slaves[0]
    away.kill()
    for number in range(4):
        group.run(group.send_all(messages(f"part {number}", 120)))
        world.run_for_ms(3_000)
    world.run_for_ms(10_000)
    master = group.app(group.master)
    assert master.store.min_offset() > 0
    group.start(away)
    world.run_until(
        lambda: not away.running, 30_000
    )  # it stopped to replace its log by that of another member
    assert away.failure is None
    group.start(away)
    world.run_until(group.caught_up, 30_000)
    sent = messages("at the end", 30)
    group.run(group.send_all(sent))
    world.run_until(group.caught_up, 30_000)
    store = group.app(away).store
    assert store.queue_offset_skips() == 0
    for topic, queue_id in master.store.queues():
        assert store.max_queue_offset(topic, queue_id) == master.store.max_queue_offset(topic, queue_id)
    assert 0 < store.min_offset() <= master.store.confirm_offset()
    assert shows(store, sent)
    group.master.kill()
    group.wait_for_master()
    assert shows(group.app(group.master).store, sent)


def test_a_leader_that_cannot_store_messages_transfers_leadership(world: World) -> None:
    group = started(world)
    former = group.master
    group.app(former).store.disk_too_full = True
    world.run_until(lambda: group.has_master() and group.master is not former, 20_000)
    world.run_for_ms(500)
    sent = messages("elsewhere", 20)
    group.run(group.send_all(sent))
    assert group.bodies() == sorted(sent)


def test_terms_are_reported_as_epochs_and_slaves_in_sync_are_counted(world: World) -> None:
    group = started(world)
    group.run(group.send_all(messages("some", 30)))
    before = epochs_of(group, group.master)
    assert [each.epoch for each in before] == [group.app(group.master).ha.epoch]
    former = group.master
    former.kill()
    group.wait_for_master()
    group.run(group.send_all(messages("more", 30)))
    status = orjson.loads(
        group.run(group.ask(group.app(group.master).address, RequestCode.GET_BROKER_HA_STATUS)).body
    )
    assert (status["master"], status["inSyncSlaveNums"]) == (
        True,
        1,
    )  # the killed member has not reported for long
    group.start(former)
    group.world.run_until(group.caught_up, 20_000)
    group.world.run_for_ms(2_000)
    epochs = {
        name: epochs_of(group, node) for name, node in group.world.nodes.items() if node in group.brokers
    }
    for rows in epochs.values():
        assert [(each.epoch, each.start_offset) for each in rows] == [
            (each.epoch, each.start_offset) for each in epochs[former.name]
        ]
        assert (rows[0].epoch, rows[0].start_offset) == (before[0].epoch, before[0].start_offset) and len(
            rows
        ) == 2
    status = orjson.loads(
        group.run(group.ask(group.app(group.master).address, RequestCode.GET_BROKER_HA_STATUS)).body
    )
    assert status["inSyncSlaveNums"] == 2


def epochs_of(group: GroupSet, node: Node) -> list[EpochSpan]:
    """The epochs as getBrokerEpoch shows them."""
    reply = group.run(group.ask(group.app(node).address, RequestCode.GET_BROKER_EPOCH_CACHE))
    return EpochCache.decode(reply.body).epoch_list


def test_controller_requests_are_refused_with_the_alternative(world: World) -> None:
    group = started(world)
    address = group.app(group.master).address
    for code, alternative in (
        (RequestCode.CONTROLLER_GET_METADATA_INFO, "dledger status"),
        (RequestCode.CONTROLLER_ELECT_MASTER, "elects its master itself"),
        (RequestCode.RESYNC_BROKER, "empty it"),
    ):
        reply = group.run(group.ask(address, code))
        assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert alternative in (reply.remark or "")


def test_the_oldest_store_time_is_that_of_a_message_and_not_of_an_earlier_entry(world: World) -> None:
    group = started(world)
    group.run(group.send_all(messages("some", 3)))
    group.world.run_for_ms(60_000)
    reply = group.run(group.ask(group.app(group.master).address, RequestCode.GET_BROKER_RUNTIME_INFO))
    table = KVTable.decode(reply.body).table
    oldest = group.app(group.master).store.first_store_time()
    assert oldest is not None
    assert table["earliestMessageTimeStamp"] == str(oldest) != table["bootTimestamp"]


def test_keys_in_damaged_index_files_are_found_again(world: World) -> None:
    group = started(world)
    group.run(group.send_all(messages("some", 600)))
    group.world.run_until(group.caught_up, 20_000)
    slave = group.slaves[0]
    group.world.run(slave.stop())
    paths = sorted(path for path in slave.disk.entries if path.startswith("index/"))
    assert len(paths) > 3
    slave.disk.drop(paths[1])
    slave.disk.put(paths[2], bytes(len(slave.disk.content(paths[2]) or b"")))
    slave.disk.put(paths[-1], b"")
    group.start(slave)
    group.world.run_until(group.caught_up, 20_000)

    async def missed() -> list[str]:
        store, keys = group.app(slave).store, []
        for topic, queue_id in store.queues():
            for entry in store.entries(topic, queue_id, 0, 500):
                record = await store.message_at(entry.physical_offset)
                assert record is not None
                key = decode(bytes(record)).property_map["UNIQ_KEY"]
                found = await store.find_by_key(topic, key, 9, 0, 1 << 62)
                if [bytes(each) for each in found] != [bytes(record)]:
                    keys.append(key)
        return keys

    group.world.run_for_ms(20_000)
    assert group.run(missed()) == []
