"""Messages in transactions of whole broker sets on virtual time, through failovers and hand-overs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.app import BrokerApp
from messagestore.messages import MessageToStore
from messagestore.systemtopics import CHECKED_TOO_OFTEN_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from mqclient.client import Client
from mqclient.errors import EndOutcomeUnknown, EndRefused, SendRefused
from mqclient.message import StoredMessage
from mqclient.route import MessageQueue
from mqclient.transactions import Transaction, TransactionState
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.transactions import EndTransactionHeader
from simulation.kernel.world import World
from tests.unit.broker.brokerset import Cluster
from tests.unit.broker.groupset import GroupSet

ROLLBACK, COMMIT, UNKNOWN = TransactionState.ROLLBACK, TransactionState.COMMIT, TransactionState.UNKNOWN
SOON = {"transactionTimeOut": 500, "transactionCheckInterval": 1_000}


def unknown(message: StoredMessage) -> TransactionState:
    return UNKNOWN


async def records(client: Client, topic: str) -> list[StoredMessage]:
    """What stands in queue 0 of a topic that no client is told of."""
    found: list[StoredMessage] = []
    consumer, queue = client.consumer("looker"), MessageQueue(topic, "broker-a", 0)
    client.routes._entries.clear()
    result = await consumer.pull(queue, 0)
    while result.messages:
        found += result.messages
        result = await consumer.pull(queue, result.next_offset)
    return found


def bodies(cluster: Cluster) -> list[bytes]:
    return sorted(message.body for message in cluster.run(cluster.read_all()))


def open_count(app: BrokerApp) -> int:
    table = app.requests.transactions.open
    return -1 if table is None else len(table)


def test_committed_messages_are_read_and_others_are_not(world: World) -> None:
    cluster = Cluster(world, 2)
    cluster.start_up()

    async def play() -> None:
        async with cluster.client() as client, client.transactions("PG", unknown) as producer:
            first = await producer.send("orders", b"committed", keys="k")
            second = await producer.send("orders", b"rolled back")
            await producer.send("orders", b"open")
            await first.commit()
            await second.rollback()

    cluster.run(play())
    world.run_for_ms(5_000)
    assert bodies(cluster) == [b"committed"]
    app = cluster.app(cluster.master)
    assert open_count(app) == 1
    assert app.store.max_queue_offset(HALF_TOPIC, 0) == 3
    assert app.requests.transactions.first_open() is not None
    totals = app.requests.transactions.totals
    assert (totals.committed, totals.rolled_back) == ({"orders": 1}, {"orders": 1})
    assert app.requests.open_transactions == 1
    offsets = app.tables.offsets
    assert offsets.find("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == 2


def test_a_second_end_changes_nothing(world: World) -> None:
    cluster = Cluster(world, 2)
    cluster.start_up()

    async def play() -> None:
        async with cluster.client() as client, client.transactions("PG", unknown) as producer:
            first = await producer.send("orders", b"committed")
            second = await producer.send("orders", b"rolled back")
            await first.commit()
            await first.commit()
            with pytest.raises(EndRefused, match="commit"):
                await first.rollback()
            await second.rollback()
            await second.rollback()
            with pytest.raises(EndRefused, match="rollback"):
                await second.commit()

    cluster.run(play())
    assert bodies(cluster) == [b"committed"]
    assert open_count(cluster.app(cluster.master)) == 0


def test_producers_are_asked_for_what_they_did_not_end(world: World) -> None:
    cluster = Cluster(world, 2, **SOON)
    cluster.start_up()
    asked: list[bytes] = []

    def check(message: StoredMessage) -> TransactionState:
        asked.append(message.body)
        assert message.topic == "orders"
        if message.body == b"late" and asked.count(b"late") < 3:
            return UNKNOWN
        return ROLLBACK if message.body == b"bad" else COMMIT

    async def play() -> None:
        async with cluster.client() as client, client.transactions("PG", check) as producer:
            for body in (b"good", b"bad", b"late"):
                await producer.send("orders", body)
            await asyncio.sleep(6)

    cluster.run(play())
    assert bodies(cluster) == [b"good", b"late"]
    assert sorted(asked) == [b"bad", b"good", b"late", b"late", b"late"]
    app = cluster.app(cluster.master)
    assert open_count(app) == 0
    half_end = app.store.max_queue_offset(HALF_TOPIC, 0)
    assert half_end == 3 + len(asked)
    world.run_for_ms(5_000)
    assert app.tables.offsets.find("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == half_end


def test_what_is_asked_for_too_often_is_kept_elsewhere(world: World) -> None:
    cluster = Cluster(world, 2, transactionCheckMax=2, **SOON)
    cluster.start_up()

    async def play() -> list[StoredMessage]:
        async with cluster.client() as client, client.transactions("PG", unknown) as producer:
            await producer.send("orders", b"forgotten")
            await asyncio.sleep(6)
            return []

    cluster.run(play())
    app = cluster.app(cluster.master)
    assert open_count(app) == 0
    assert app.store.max_queue_offset(CHECKED_TOO_OFTEN_TOPIC, 0) == 1
    assert bodies(cluster) == []


def test_a_half_without_producers_waits_and_is_not_counted(world: World) -> None:
    cluster = Cluster(world, 2, transactionCheckMax=2, **SOON)
    cluster.start_up()

    async def send() -> None:
        async with cluster.client() as client, client.transactions("PG", unknown) as producer:
            await producer.send("orders", b"waits")

    async def answer() -> None:
        async with cluster.client() as client:
            async with client.transactions("PG", lambda message: COMMIT, topics=["orders"]):
                await asyncio.sleep(3)

    cluster.run(send())
    world.run_for_ms(20_000)
    app = cluster.app(cluster.master)
    assert open_count(app) == 1 and app.store.max_queue_offset(HALF_TOPIC, 0) == 1
    cluster.run(answer())
    assert bodies(cluster) == [b"waits"]


def test_a_producer_that_is_there_is_asked_however_old_the_half_seems(world: World) -> None:
    """As after a jump of the clock before a failover, or with a retention shorter than the time between two looks."""
    cluster = Cluster(world, 2, fileReservedSeconds=1, **SOON | {"transactionCheckInterval": 3_000})
    cluster.start_up()

    async def play() -> None:
        async with cluster.client() as client, client.transactions("PG", lambda message: COMMIT) as producer:
            await producer.send("orders", b"asked for")
            await asyncio.sleep(5)

    cluster.run(play())
    assert bodies(cluster) == [b"asked for"]


def killed_and_led_on(cluster: Cluster, world: World) -> None:
    """The master dies, another one is elected, and the former comes back."""
    former = cluster.master
    former.kill()
    world.run_until(lambda: bool(cluster.masters), 30_000)
    cluster.start(former)
    cluster.wait_in_sync(len(cluster.brokers), 30_000)


@pytest.mark.parametrize("told", [False, True])
def test_a_transaction_is_ended_once_through_a_failover(world: World, told: bool) -> None:
    cluster = Cluster(world, 3, transactionOpBatchInterval=10 if told else 60_000, **SOON)
    cluster.start_up()
    asked: list[bytes] = []

    def check(message: StoredMessage) -> TransactionState:
        asked.append(message.body)
        return COMMIT

    async def begin(client: Client, producer: Any) -> list[Transaction]:
        made = [await producer.send("orders", body) for body in (b"one", b"two", b"three")]
        await made[0].commit()
        await made[1].rollback()
        await asyncio.sleep(0.2)
        return made

    async def go_on(client: Client, producer: Any, made: list[Transaction]) -> None:
        await asyncio.sleep(0.5)
        for transaction in made[:2]:
            with pytest.raises((EndRefused, EndOutcomeUnknown)):
                await transaction.rollback()
                await transaction.commit()
        await asyncio.sleep(5)

    client = cluster.client()
    producer = client.transactions("PG", check)

    async def enter() -> list[Transaction]:
        await producer.__aenter__()
        return await begin(client, producer)

    made = cluster.run(enter())
    killed_and_led_on(cluster, world)
    cluster.run(go_on(client, producer, made))
    world.run_for_ms(12_000 if told else 80_000)  # a half is past once it is told done
    cluster.run(client.close())
    assert bodies(cluster) == [b"one", b"three"]
    assert set(asked) == {b"three"}
    app = cluster.app(cluster.master)
    assert open_count(app) == 0
    assert app.requests.transactions.first_open() is None


def test_an_end_is_passed_on_by_a_former_master(world: World) -> None:
    cluster = Cluster(world, 2)
    cluster.start_up()
    former = cluster.app(cluster.master)
    slave = next(node for node in cluster.brokers if node is not cluster.master)

    async def play() -> int:
        async with cluster.client() as client, client.transactions("PG", unknown) as producer:
            transaction = await producer.send("orders", b"handed over")
            await cluster.designate(cluster.app(slave).membership.broker_id)
            address = former.address
            result = transaction.result
            header = EndTransactionHeader(
                "PG",
                result.queue_offset,
                int(result.offset_message_id[-16:], 16),
                8,
                msg_id=result.message_ids[0],
            )
            reply = await cluster.ask(address, RequestCode.END_TRANSACTION, header)
            return reply.code

    assert cluster.run(play()) == 0
    world.run_for_ms(3_000)
    assert cluster.master is slave
    assert bodies(cluster) == [b"handed over"]


def test_what_cannot_be_in_a_transaction_is_refused(world: World) -> None:
    cluster = Cluster(world, 2)
    cluster.start_up()

    async def play() -> list[ResponseCode | int | None]:
        codes: list[ResponseCode | int | None] = []
        async with cluster.client() as client:
            producer = client.producer("PG")
            for properties in ({"DELAY": "3"}, {"TIMER_DELAY_SEC": "9"}):
                with pytest.raises(SendRefused) as refused:
                    await producer.send("orders", b"x", properties={"TRAN_MSG": "true", **properties})
                codes.append(refused.value.code)
        return codes

    assert cluster.run(play()) == [ResponseCode.MESSAGE_ILLEGAL] * 2


def test_who_says_neither_commit_nor_rollback_is_told_that_nothing_was_done(world: World) -> None:
    """Upstream answers nothing."""
    cluster = Cluster(world, 2)
    cluster.start_up()

    async def play() -> list[tuple[int, str | None]]:
        async with cluster.client() as client, client.transactions("PG", unknown) as producer:
            result = (await producer.send("orders", b"open")).result
            place = int(result.offset_message_id[-16:], 16)
            said = []
            for state in (0, 4, 9):
                header = EndTransactionHeader("PG", result.queue_offset, place, state)
                address = cluster.app(cluster.master).address
                reply = await cluster.ask(address, RequestCode.END_TRANSACTION, header)
                said.append((reply.code, reply.remark))
            return said

    why = "ends nothing: 8 commits, 12 rolls back; the transaction stays open"
    assert cluster.run(play()) == [(29, f"commitOrRollback {state} {why}") for state in (0, 4, 9)]
    assert open_count(cluster.app(cluster.master)) == 1


def test_ends_that_name_something_else_are_refused(world: World) -> None:
    cluster = Cluster(world, 2)
    cluster.start_up()

    async def play() -> list[tuple[int, str | None]]:
        async with cluster.client() as client, client.transactions("PG", unknown) as producer:
            result = (await producer.send("orders", b"open")).result
            plain = await client.producer("PG").send("orders", b"plain")
            place, queue_offset = int(result.offset_message_id[-16:], 16), result.queue_offset
            said = []
            for header in (
                EndTransactionHeader("other", queue_offset, place, 8),
                EndTransactionHeader("PG", queue_offset + 1, place, 8),
                EndTransactionHeader("PG", queue_offset, place, 8, msg_id="another"),
                EndTransactionHeader("PG", queue_offset, place + 1, 8),
                EndTransactionHeader("PG", plain.queue_offset, int(plain.offset_message_id[-16:], 16), 8),
                EndTransactionHeader("PG", queue_offset, 1 << 40, 8),
            ):
                reply = await cluster.ask(
                    cluster.app(cluster.master).address, RequestCode.END_TRANSACTION, header
                )
                said.append((reply.code, reply.remark))
            return said

    not_found = "Find prepared transaction message failed"
    assert cluster.run(play()) == [
        (1, "The producer group wrong"),
        (1, "The transaction state table offset wrong"),
        (1, f"{not_found}: another is not there any more"),
        *[(1, not_found)] * 3,
    ]
    assert open_count(cluster.app(cluster.master)) == 1
    assert OP_HALF_TOPIC not in {topic for topic, _ in cluster.app(cluster.master).store.queues()}


def test_a_commit_that_was_not_told_is_no_open_half_for_the_next_master(world: World) -> None:
    cluster = Cluster(world, 3, transactionOpBatchInterval=600_000, **SOON)
    cluster.start_up()
    asked: list[bytes] = []

    def check(message: StoredMessage) -> TransactionState:
        asked.append(message.body)
        return COMMIT

    client = cluster.client()
    producer = client.transactions("PG", check)

    async def begin() -> None:
        await producer.__aenter__()
        for body in (b"one", b"two"):
            await (await producer.send("orders", body)).commit()
        await producer.send("orders", b"open")

    cluster.run(begin())
    assert cluster.app(cluster.master).store.max_queue_offset(OP_HALF_TOPIC, 0) == 0
    killed_and_led_on(cluster, world)
    world.run_for_ms(25_000)
    cluster.run(client.close())
    assert bodies(cluster) == [b"one", b"open", b"two"]
    assert asked == [b"open"]


@pytest.mark.parametrize("made", [Cluster, GroupSet])
def test_what_was_taken_before_the_longest_body_was_shortened_goes_its_way(
    world: World, made: Callable[..., Cluster]
) -> None:
    """A half is put back, asked for and committed; a delayed message is delivered."""
    settings = {"mappedFileSizeCommitLog": 1 << 20, "messageDelayLevel": "1s 20s", **SOON}
    cluster = made(world, **({} if made is GroupSet else {"brokers": 2}), **settings)
    cluster.start_up()
    body, delayed = b"h" * 200_000, b"d" * 200_000

    async def send() -> None:
        async with cluster.client() as client, client.transactions("PG", unknown) as producer:
            await producer.send("orders", body)
            await client.producer("P").send("orders", delayed, properties={"DELAY": "2"})

    cluster.run(send())
    for node in cluster.brokers:
        node.kill()
    for node in cluster.brokers:
        cluster.start(node, maxMessageSize=1_000)
    world.run_until(lambda: len(cluster.masters) == 1, 60_000)
    world.run_for_ms(1_000)

    async def answer() -> ResponseCode | None:
        async with cluster.client() as client:
            async with client.transactions("PG", lambda message: COMMIT, topics=["orders"]):
                await asyncio.sleep(25)
            try:
                await client.producer("P").send("orders", body)
            except SendRefused as refused:
                return ResponseCode(refused.code)
            return None

    assert cluster.run(answer()) is ResponseCode.MESSAGE_ILLEGAL, "a new one is measured"
    assert bodies(cluster) == [delayed, body]
    assert open_count(cluster.app(cluster.master)) == 0


def test_a_half_that_cannot_be_put_back_is_asked_for_and_committed(world: World) -> None:
    """As a Java master stored it before this one took its place: its properties fill 32,767 bytes."""
    cluster = Cluster(world, 3, **SOON)
    cluster.start_up()
    client = cluster.client()
    asked: list[bytes] = []

    def check(message: StoredMessage) -> TransactionState:
        asked.append(message.body)
        return COMMIT if asked.count(message.body) > 2 else UNKNOWN

    producer = client.transactions("PG", check, topics=["orders"])
    named = b"UNIQ_KEY\x01java\x02PGROUP\x01PG\x02TRAN_MSG\x01true\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02own\x01"
    properties = named + b"x" * (32_766 - len(named)) + b"\x02"

    async def begin() -> None:
        await producer.__aenter__()
        (stored,) = cluster.app(cluster.master).store.append(
            [MessageToStore(HALF_TOPIC, 0, b"java's", properties)]
        )
        assert stored.error is None
        await producer.send("orders", b"ours")

    cluster.run(begin())
    killed_and_led_on(cluster, world)
    world.run_for_ms(25_000)
    cluster.run(client.close())
    assert sorted(asked) == 3 * [b"java's"] + 3 * [b"ours"]
    assert bodies(cluster) == [b"java's", b"ours"]
    app = cluster.app(cluster.master)
    assert open_count(app) == 0 and app.requests.transactions.first_open() is None
