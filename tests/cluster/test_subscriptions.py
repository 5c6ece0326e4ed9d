"""Consumer groups of the Python client in a simulated set: shares, failovers, failures, order, resets."""

from __future__ import annotations

import asyncio
import ipaddress
import os
from collections import Counter
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mqclient import (
    DEAD_LETTER,
    GroupTaken,
    MessageTooLong,
    OutgoingMessage,
    SendRefused,
    SubscriptionFailed,
    SubscriptionStopped,
    sql,
    tags,
)
from mqclient.client import Client
from mqclient.groupconsumer import GroupConsumer
from mqclient.groupmember import GroupMember
from mqclient.received import ReceivedMessage
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.heartbeats import ConsumerConnection
from remoting.bodies.queues import ConsumeDirectlyResult, ConsumerQueues, ConsumerStatusBody
from remoting.codes import RequestCode
from remoting.headers.admin import (
    ConsumerGroupHeader,
    ConsumerStatusHeader,
    CreateTopicHeader,
    GetConsumerRunningInfoHeader,
)
from remoting.headers.messages import ConsumeMessageDirectlyHeader
from remoting.headers.offsets import ResetOffsetHeader
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster
from tests.cluster.membernode import MemberNode


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with World(961) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        yield cluster


async def fill(client: Client, first: int, end: int, **how: Any) -> None:
    producer = client.producer("PG")
    for number in range(first, end):
        await producer.send("orders", b"%d" % number, patience_ms=20_000, **how)


def send(cluster: Cluster, first: int, end: int, **how: Any) -> None:
    async def play() -> None:
        async with cluster.client() as client:
            await fill(client, first, end, **how)

    cluster.run(play())


async def collect(subscription: GroupConsumer, into: list[int], count: int) -> None:
    async for message in subscription:
        into.append(int(message.body))
        if len(into) >= count:
            return


def run(cluster: Cluster, play: Coroutine[Any, Any, None]) -> None:
    cluster.run(asyncio.wait_for(cluster._client_node.spawn(play), 100))


def test_one_member_reads_everything_once_and_the_next_goes_on_behind_it(cluster: Cluster) -> None:
    first: list[int] = []
    second: list[int] = []

    async def play() -> None:
        async with cluster.client() as client:
            await fill(client, 0, 40)
            async with client.subscribe("orders", group="billing", start="first") as messages:
                await collect(messages, first, 40)
        async with cluster.client() as client:
            await fill(client, 40, 60)
            async with client.subscribe("orders", group="billing") as messages:
                await collect(messages, second, 20)

    run(cluster, play())
    assert sorted(first) == list(range(40))
    assert sorted(second) == list(range(40, 60))


def test_members_share_the_queues_as_they_come_and_go(cluster: Cluster) -> None:
    members = [MemberNode(cluster.world, number) for number in range(3)]
    for member in members[:2]:
        member.start()
        cluster.world.run_for_ms(1_500)
    assert sorted(len(member.queues) for member in members[:2]) == [2, 2]
    members[2].start()
    cluster.world.run_for_ms(1_000)
    assert sorted(queue for member in members for queue in member.queues) == [0, 1, 2, 3]
    assert [len(member.queues) > 0 for member in members] == [True] * 3
    send(cluster, 0, 40)
    members[0].leave()
    cluster.world.run_for_ms(1_000)
    assert sorted(queue for member in members[1:] for queue in member.queues) == [0, 1, 2, 3]
    members[1].node.kill()
    cluster.world.run_for_ms(1_000)
    assert members[2].queues == [0, 1, 2, 3], "brokers notice the end of its connections"
    send(cluster, 40, 80)
    cluster.world.run_for_ms(500)
    numbers = [number for member in members for number in member.numbers]
    assert set(numbers) == set(range(80))
    assert max(Counter(numbers).values()) <= 2, "again only what a member had when it died"


@pytest.mark.parametrize("ordered", [False, True])
def test_messages_come_within_a_second_of_the_end_of_a_master(cluster: Cluster, ordered: bool) -> None:
    members = [MemberNode(cluster.world, number, ordered=ordered).start() for number in range(2)]
    cluster.world.run_for_ms(2_000)
    send(cluster, 0, 20)
    cluster.world.run_for_ms(200)
    cluster.master.kill()
    cluster.world.run_until(lambda: len(cluster.masters) == 1, 10_000)
    elected_ms = cluster.world.now_ms
    send(cluster, 20, 40)
    cluster.world.run_for_ms(1_500)
    numbers = [number for member in members for number in member.numbers]
    assert set(numbers) == set(range(40))
    late = [at for member in members for at, number, _ in member.got if number >= 20]
    assert max(late) - elected_ms < 2_000
    assert sorted(queue for member in members for queue in member.queues) == [0, 1, 2, 3]


def test_a_message_that_fails_comes_again_and_is_a_dead_letter_at_last(cluster: Cluster) -> None:
    attempts: list[tuple[int, str]] = []
    member = MemberNode(cluster.world, 0, max_reconsume_times=2)

    async def fail(message: ReceivedMessage) -> None:
        if message.body == b"3":
            attempts.append((message.attempt, message.topic))
            raise RuntimeError("three is too much")

    member.before = fail
    member.start()
    send(cluster, 0, 6)
    cluster.world.run_for_ms(60_000)
    assert sorted(member.numbers) == [0, 1, 2, 4, 5]
    assert attempts == [(1, "orders"), (2, "orders"), (3, "orders")]
    dead: list[int] = []

    async def play() -> None:
        async with cluster.client() as client:
            async with client.subscribe("%DLQ%billing", group="undertaker", start="first") as messages:
                await collect(messages, dead, 1)

    run(cluster, play())
    assert dead == [3]


def test_an_error_in_a_loop_hands_the_message_back_and_a_cancel_does_not(cluster: Cluster) -> None:
    got: list[tuple[bytes, int]] = []

    async def play() -> None:
        async with cluster.client() as client:
            await fill(client, 0, 1)
            with pytest.raises(RuntimeError):
                async with client.subscribe("orders", group="billing", start="first") as messages:
                    async for _ in messages:
                        raise RuntimeError("no")
            async with client.subscribe("orders", group="billing") as messages:
                async for message in messages:
                    got.append((message.body, message.attempt))
                    break
            await fill(client, 1, 2)

            async def consume() -> None:
                async with client.subscribe("orders", group="billing") as messages:
                    async for message in messages:
                        got.append((message.body, message.attempt))
                        await asyncio.sleep(3_600)

            consuming = asyncio.create_task(consume())
            await asyncio.sleep(2)
            consuming.cancel()
            await asyncio.wait([consuming])
            async with client.subscribe("orders", group="billing") as messages:
                message = await messages.take()
                got.append((message.body, message.attempt))
                messages.acknowledge(message)

    run(cluster, play())
    assert got == [(b"0", 2), (b"1", 1), (b"1", 1)]


def test_an_ordered_queue_waits_for_its_failed_message(cluster: Cluster) -> None:
    seen: list[int] = []
    member = MemberNode(cluster.world, 0, ordered=True)

    async def fail(message: ReceivedMessage) -> None:
        seen.append(int(message.body))
        if message.body == b"2" and message.attempt < 3:
            raise RuntimeError("not yet")

    member.before = fail
    member.start()
    send(cluster, 0, 5, queue_id=1)
    cluster.world.run_for_ms(5_000)
    assert seen == [0, 1, 2, 2, 2, 3, 4]
    assert member.numbers == [0, 1, 2, 3, 4]


def test_an_ordered_queue_is_handed_over_once_its_message_is_finished(cluster: Cluster) -> None:
    """The second member gets queues with a message in the first one's hands only when that is finished."""
    holders: Counter[int] = Counter()
    overlaps: list[int] = []
    members = [MemberNode(cluster.world, number, ordered=True) for number in range(2)]

    async def slowly(message: ReceivedMessage) -> None:
        queue = message.queue.queue_id
        holders[queue] += 1
        if holders[queue] > 1:
            overlaps.append(queue)
        await asyncio.sleep(3)
        holders[queue] -= 1

    for member in members:
        member.before = slowly
    members[0].start()
    cluster.world.run_for_ms(2_000)
    send(cluster, 0, 16)
    members[1].start()
    cluster.world.run_for_ms(25_000)
    assert not overlaps
    assert members[1].got
    numbers = [number for member in members for number in member.numbers]
    assert sorted(numbers) == list(range(16)), "handed over between two messages, none came twice"


@pytest.mark.parametrize("event", ["come back", "moved"])
def test_an_ordered_queue_that_is_read_again_waits_for_the_message_in_hand(
    cluster: Cluster, event: str
) -> None:
    """The queue is given up and comes back, or an administrator moves the group, while its message is handled."""
    busy: Counter[int] = Counter()
    overlaps: list[int] = []
    member, other = (MemberNode(cluster.world, number, ordered=True) for number in range(2))

    async def slowly(message: ReceivedMessage) -> None:
        queue = message.queue.queue_id
        busy[queue] += 1
        if busy[queue] > 1:
            overlaps.append(queue)
        await asyncio.sleep(6)
        busy[queue] -= 1

    member.before = slowly
    member.start()
    cluster.world.run_for_ms(2_000)
    send(cluster, 0, 12)
    if event == "come back":
        other.start()
        cluster.world.run_for_ms(1_000)
        assert len(member.queues) == 2
        other.node.kill()
    else:
        header = ResetOffsetHeader("orders", "billing", 0, is_force=True)
        ask(cluster, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    cluster.world.run_for_ms(40_000)
    assert len(member.queues) == 4
    assert not overlaps
    assert set(member.numbers) == set(range(12))


def test_a_dead_letter_at_once_and_acknowledgements_out_of_order(cluster: Cluster) -> None:
    async def play() -> None:
        async with cluster.client() as client:
            await fill(client, 0, 4, queue_id=0)
            async with client.subscribe("orders", group="billing", start="first") as messages:
                batch = await messages.take_batch(4)
                assert [int(each.body) for each in batch] == [0, 1, 2, 3]
                messages.acknowledge(batch[3], batch[1])
                await messages.hand_back(batch[2], delay_level=DEAD_LETTER)
                await messages.commit()
                consumer = client.consumer("billing")
                assert await consumer.committed(batch[0].queue) == 0, "the first one is not finished"
                messages.acknowledge(batch[0])
                messages.acknowledge(batch[0])
                await messages.commit()
                assert await consumer.committed(batch[0].queue) == 4
            dead: list[int] = []
            async with client.subscribe("%DLQ%billing", group="undertaker", start="first") as messages:
                await collect(messages, dead, 1)
            assert dead == [2]

    run(cluster, play())


def test_a_group_that_an_administrator_moves_while_it_reads(cluster: Cluster) -> None:
    member = MemberNode(cluster.world, 0).start()
    send(cluster, 0, 8)
    cluster.world.run_for_ms(1_000)
    assert sorted(member.numbers) == list(range(8))
    header = ResetOffsetHeader("orders", "billing", 0, is_force=True)
    address = cluster.app(cluster.master).address
    assert cluster.run(cluster.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)).code == 0
    cluster.world.run_for_ms(2_000)
    assert Counter(member.numbers) == Counter(dict.fromkeys(range(8), 2))


def test_paused_queues_give_no_messages(cluster: Cluster) -> None:
    member = MemberNode(cluster.world, 0).start()
    cluster.world.run_for_ms(1_000)
    subscription = member.subscription
    assert subscription is not None
    (second,) = (queue for queue in subscription.assigned if queue.queue_id == 1 and queue.topic == "orders")
    subscription.pause(second)
    send(cluster, 0, 2, queue_id=1)
    send(cluster, 2, 4, queue_id=2)
    cluster.world.run_for_ms(1_000)
    assert member.numbers == [2, 3]
    subscription.pause()
    send(cluster, 4, 6, queue_id=2)
    cluster.world.run_for_ms(1_000)
    subscription.resume(second)
    cluster.world.run_for_ms(1_000)
    assert member.numbers == [2, 3]
    subscription.resume()
    cluster.world.run_for_ms(1_000)
    assert sorted(member.numbers) == list(range(6))


def test_what_is_read_ahead_is_limited(cluster: Cluster) -> None:
    send(cluster, 0, 200)

    async def play() -> None:
        async with cluster.client() as client:
            async with client.subscribe(
                "orders", group="billing", start="first", max_messages=10
            ) as messages:
                await asyncio.sleep(2)
                held = [puller.progress.count for puller in messages.pullers.values() if puller.progress]
                assert sum(held) <= 4 * 32
                got: list[int] = []
                await collect(messages, got, 200)
                assert sorted(got) == list(range(200))

    run(cluster, play())


def test_all_members_of_a_broadcast_get_all_messages(cluster: Cluster) -> None:
    members = [
        MemberNode(cluster.world, number, broadcast=True, start="first").start() for number in range(2)
    ]
    cluster.world.run_for_ms(1_000)
    send(cluster, 0, 10)
    cluster.world.run_for_ms(1_000)
    assert [sorted(member.numbers) for member in members] == [list(range(10))] * 2


def test_several_topics_with_tags(cluster: Cluster) -> None:
    got: list[bytes] = []

    async def play() -> None:
        async with cluster.client() as client:
            producer = client.producer("PG")
            for topic, tag in (("orders", "A"), ("orders", "B"), ("clicks", "A"), ("clicks", "B")):
                await producer.send(topic, f"{topic} {tag}".encode(), tags=tag, patience_ms=5_000)
            wanted = {"orders": "A", "clicks": tags("B || C")}
            async with client.subscribe(wanted, group="billing", start="first") as messages:
                async for message in messages:
                    got.append(message.body)
                    if len(got) == 2:
                        break

    run(cluster, play())
    assert sorted(got) == [b"clicks B", b"orders A"]


def test_a_group_that_may_not_read_fails_with_the_brokers_reason(cluster: Cluster) -> None:
    address = cluster.app(cluster.master).address
    body = SubscriptionGroupConfig("billing", consume_enable=False).encode()
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert cluster.run(cluster.ask(address, code, None, body)).code == 0

    async def play() -> None:
        async with cluster.client() as client:
            await fill(client, 0, 1)
            async with client.subscribe("orders", group="billing") as messages:
                with pytest.raises(SubscriptionFailed, match="no permission") as failed:
                    await messages.take()
                assert failed.value.code == 16

    run(cluster, play())


def test_mistakes_are_refused_where_they_are_made(cluster: Cluster) -> None:
    async def play() -> None:
        async with cluster.client() as client:
            for topics, how, error in (
                ([], {}, ValueError), ("", {}, ValueError), (["%RETRY%g"], {}, ValueError), ({"orders": "||"}, {}, ValueError),
                ([b"orders"], {}, TypeError), ("orders", {"start": "middle"}, ValueError),
                ("orders", {"strategy": "RANDOM"}, ValueError), ("orders", {"max_messages": 0}, ValueError),
                ("orders", {"ordered": True, "broadcast": True}, ValueError),
            ):  # fmt: skip
                with pytest.raises(error):
                    client.subscribe(topics, group="g", **how)
            with pytest.raises(ValueError, match="a group has a name"):
                client.subscribe("orders", group="")
            with pytest.raises(ValueError, match="not empty"):
                sql(" ")
            async with client.subscribe("orders", group="g") as messages:
                with pytest.raises(GroupTaken):
                    client.subscribe("orders", group="g")
                with pytest.raises(ValueError, match="at least 1"):
                    await messages.take_batch(0)
                with pytest.raises(ValueError, match="at least 1"):
                    await messages.run(None, concurrency=0)  # type: ignore[arg-type]
                messages.stop()
                with pytest.raises(SubscriptionStopped):
                    await messages.take()
            client.subscribe("orders", group="g")

    run(cluster, play())


def test_a_broker_that_restarts_knows_the_members_again_at_once(cluster: Cluster) -> None:
    MemberNode(cluster.world, 0).start()
    cluster.world.run_for_ms(1_000)
    (slave, *_) = cluster.slaves_by_id()
    slave.kill()
    cluster.world.run_for_ms(1_000)
    cluster.start(slave)
    cluster.world.run_for_ms(5_000)
    header = ConsumerGroupHeader("billing")
    found = cluster.run(
        cluster.ask(cluster.app(slave).address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    )
    assert found.code == 0, found.remark


def ask(cluster: Cluster, code: RequestCode, header: Any) -> Any:
    reply = cluster.run(cluster.ask(cluster.app(cluster.master).address, code, header))
    assert reply.code == 0, reply.remark
    return reply


def test_administrators_see_a_member_and_send_it_a_message(cluster: Cluster) -> None:
    member = MemberNode(cluster.world, 0).start()
    send(cluster, 0, 8)
    cluster.world.run_for_ms(1_000)
    connections = ConsumerConnection.decode(
        ask(cluster, RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader("billing")).body
    )
    (connection,) = connections.connection_set
    assert (connection.language, connections.message_model) == ("PYTHON", "CLUSTERING")
    assert connections.subscription_table.keys() == {"orders", "%RETRY%billing"}
    client_id = connection.client_id
    header = GetConsumerRunningInfoHeader("billing", client_id)
    state = ConsumerQueues.decode(ask(cluster, RequestCode.GET_CONSUMER_RUNNING_INFO, header).body)
    offsets = {
        queue.queue_id: row.commit_offset for queue, row in state.mq_table.items() if queue.topic == "orders"
    }
    assert sum(offsets.values()) == 8 and len(offsets) == 4
    status = ConsumerStatusBody.decode(
        ask(
            cluster,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            ConsumerStatusHeader("orders", "billing"),
        ).body
    )
    assert {queue.queue_id: offset for queue, offset in status.consumer_table[client_id].items()} == offsets
    first = next(message for message in member.messages if message.body == b"5")
    host, _, port = first.stored.store_host.rpartition(":")
    message_id = (
        f"{ipaddress.ip_address(host).packed.hex()}{int(port):08x}{first.stored.physical_offset:016x}"
    )
    header = ConsumeMessageDirectlyHeader("billing", client_id, message_id.upper())
    result = ConsumeDirectlyResult.decode(ask(cluster, RequestCode.CONSUME_MESSAGE_DIRECTLY, header).body)
    assert result.consume_result == "CR_SUCCESS"
    assert member.numbers.count(5) == 2

    async def fail(message: ReceivedMessage) -> None:
        raise RuntimeError("not again")

    member.before = fail
    result = ConsumeDirectlyResult.decode(ask(cluster, RequestCode.CONSUME_MESSAGE_DIRECTLY, header).body)
    assert result.consume_result == "CR_LATER"


def test_a_member_reads_on_through_hand_overs_and_new_queues(cluster: Cluster) -> None:
    members = [MemberNode(cluster.world, number).start() for number in range(2)]
    cluster.world.run_for_ms(1_000)
    send(cluster, 0, 20)
    (slave, *_) = cluster.slaves_by_id()
    cluster.run(cluster.designate(cluster.app(slave).membership.broker_id))
    send(cluster, 20, 40)
    header = CreateTopicHeader("orders", "TBW102", 6, 6, 6)
    ask(cluster, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    send(cluster, 40, 46, queue_id=5)
    cluster.world.run_for_ms(60_000)
    assert sorted(queue for member in members for queue in member.queues) == list(range(6))
    numbers = [number for member in members for number in member.numbers]
    assert set(numbers) == set(range(46))


def test_messages_with_one_key_are_read_in_the_order_of_their_sends(cluster: Cluster) -> None:
    member = MemberNode(cluster.world, 0, ordered=True, start="first").start()

    async def play() -> None:
        async with cluster.client() as client:
            producer = client.producer("PG")
            for number in range(40):
                await producer.send(
                    "orders", b"%d" % number, key=f"customer-{number % 8}", patience_ms=20_000
                )
            batch = [OutgoingMessage(b"%d" % number) for number in (40, 48)]
            await producer.send_batch("orders", batch, key="customer-0", patience_ms=20_000)

    cluster.run(play())
    cluster.world.run_for_ms(2_000)
    for customer in range(8):
        found = [(number, queue) for _, number, queue in member.got if number % 8 == customer]
        assert found == sorted(found) and len({queue for _, queue in found}) == 1
    assert len({queue for _, _, queue in member.got}) == 4, "the keys spread"


def test_messages_that_come_later(cluster: Cluster) -> None:
    member = MemberNode(cluster.world, 0, start="first").start()

    async def play() -> None:
        async with cluster.client() as client:
            producer = client.producer("PG")
            await producer.send("orders", b"1", delay_level=3)
            await producer.send("orders", b"2")
            tomorrow = datetime.now(tz=UTC) + timedelta(days=1)
            with pytest.raises(SendRefused, match="timer") as refused:
                await producer.send("orders", b"3", deliver_at=tomorrow)
            assert refused.value.code == 13
            for how in (
                {"delay_level": 0},
                {"delay_level": 1, "deliver_at": tomorrow},
                {"key": "k", "queue_id": 1},
            ):
                with pytest.raises(ValueError, match="delay_level|exclude"):
                    await producer.send("orders", b"4", **how)
            with pytest.raises(TypeError, match="a key is a text"):
                await producer.send("orders", b"4", key=7)  # type: ignore[arg-type]

    begun_ms = cluster.world.now_ms
    cluster.run(play())
    cluster.world.run_for_ms(12_000)
    at = {number: at_ms - begun_ms for at_ms, number, _ in member.got}
    assert at.keys() == {1, 2} and at[2] < 1_000 <= 10_000 <= at[1]


def test_messages_of_cancelled_work_are_given_again(cluster: Cluster) -> None:
    got: list[int] = []

    async def play() -> None:
        async with cluster.client() as client:
            await fill(client, 0, 3, queue_id=0)
            async with client.subscribe("orders", group="billing", start="first") as messages:
                batching = asyncio.create_task(messages.take_batch(10, wait_s=60))
                await asyncio.sleep(2)
                batching.cancel()
                await asyncio.wait([batching])

                async def hang(message: ReceivedMessage) -> None:
                    got.append(int(message.body))
                    await asyncio.sleep(3_600)

                running = asyncio.create_task(messages.run(hang, concurrency=2))
                await asyncio.sleep(1)
                running.cancel()
                await asyncio.wait([running])
                assert got == [0, 1]
                await collect(messages, got, 5)

    run(cluster, play())
    assert got == [0, 1, 0, 1, 2]


def test_a_defect_of_the_consumer_reaches_the_application(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(self: GroupMember) -> bool:
        raise AssertionError("a defect")

    monkeypatch.setattr(GroupMember, "rebalance", broken)

    async def play() -> None:
        async with cluster.client() as client:
            messages = client.subscribe("orders", group="billing")
            with pytest.raises(RuntimeError, match="within `async with`"):
                await messages.take()
            async with messages:
                with pytest.raises(AssertionError, match="a defect"):
                    await messages.take()

    run(cluster, play())
    assert "consumer failed" in caplog.messages


def test_long_bodies_are_compressed_and_come_as_they_were_sent(cluster: Cluster) -> None:
    bodies = [b"a" * 99, b"a" * 10_000, os.urandom(10_000)]
    got: list[tuple[bytes, bool]] = []

    async def play() -> None:
        async with cluster.client() as client:
            producer = client.producer("PG", compress_from=100, message_bytes_max=20_000)
            for body in bodies:
                await producer.send("orders", body, queue_id=0)
            with pytest.raises(MessageTooLong, match="20001 bytes"):
                await producer.send("orders", b"a" * 20_001)
            async with client.subscribe("orders", group="billing", start="first") as messages:
                for message in await messages.take_batch(3, wait_s=5):
                    got.append((message.body, len(message.stored.body) < len(message.body)))
                    messages.acknowledge(message)

    run(cluster, play())
    assert got == [(bodies[0], False), (bodies[1], True), (bodies[2], False)]


def test_an_ordered_member_that_slept_goes_on_behind_the_one_that_read_for_it(cluster: Cluster) -> None:
    """It had messages in memory, and its lock was another member's meanwhile."""
    members = [MemberNode(cluster.world, number, ordered=True).start() for number in range(2)]
    cluster.world.run_for_ms(3_000)
    send(cluster, 0, 20)
    cluster.world.run_for_ms(8_000)
    for member in members:
        subscription = member.subscription
        assert subscription is not None
    members[0].subscription.pause()  # type: ignore[union-attr]
    send(cluster, 20, 40)
    cluster.world.run_for_ms(500)
    members[0].subscription.resume()  # type: ignore[union-attr]
    members[0].node.pause(180_000)
    cluster.world.run_for_ms(179_000)
    assert set(members[1].numbers) | set(range(20)) == set(range(40)), "it was read by the other one"
    cluster.world.run_for_ms(60_000)
    assert sum(len(member.queues) for member in members) == 4 and len(members[0].queues) == 2
    numbers = Counter(number for member in members for number in member.numbers)
    assert numbers == Counter(dict.fromkeys(range(40), 1))


def test_a_message_whose_return_is_cancelled_is_given_again_and_a_subscription_is_used_once(
    cluster: Cluster,
) -> None:
    async def play() -> None:
        async with cluster.client() as client:
            await fill(client, 0, 1)
            messages = client.subscribe("orders", group="billing", start="first", grace_s=0.1)
            async with messages:
                message = await messages.take()
                returning = asyncio.create_task(messages.hand_back(message))
                await asyncio.sleep(0)
                returning.cancel()
                await asyncio.wait([returning])
                again = await asyncio.wait_for(messages.take(), 5)
                assert again.body == message.body
            with pytest.raises(RuntimeError, match="has ended"):
                await messages.__aenter__()
            client.subscribe("orders", group="billing")

    run(cluster, play())
