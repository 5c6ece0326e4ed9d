"""Transactions of whole broker sets on virtual time, across failovers and hand-overs."""

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
from tests.cluster.brokerset import Cluster
from tests.cluster.groupset import GroupSet

ROLLBACK, COMMIT, UNKNOWN = TransactionState.ROLLBACK, TransactionState.COMMIT, TransactionState.UNKNOWN
SOON = {"transactionTimeOut": 500, "transactionCheckInterval": 1_000}


def unknown(message: StoredMessage) -> TransactionState:
    return UNKNOWN


async def records(client: Client, topic: str) -> list[StoredMessage]:
    """The messages in queue 0 of an internal topic."""
    found: list[StoredMessage] = []
    consumer, queue = client.consumer("looker"), MessageQueue(topic, "broker-a", 0)
    client.routes._entries.clear()
    result = await consumer.pull(queue, 0)
    while result.messages:
        found += result.messages
        result = await consumer.pull(queue, result.next_offset)
    return found


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
    assert cluster.bodies() == [b"committed"]
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
    assert cluster.bodies() == [b"committed"]
    assert open_count(cluster.app(cluster.master)) == 0


def test_producers_are_checked_for_transactions_that_they_did_not_end(world: World) -> None:
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
    assert cluster.bodies() == [b"good", b"late"]
    assert sorted(asked) == [b"bad", b"good", b"late", b"late", b"late"]
    app = cluster.app(cluster.master)
    assert open_count(app) == 0
    half_end = app.store.max_queue_offset(HALF_TOPIC, 0)
    assert half_end == 3 + len(asked)
    world.run_for_ms(5_000)
    assert app.tables.offsets.find("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == half_end


def test_a_half_message_checked_too_often_moves_to_the_abandoned_topic(world: World) -> None:
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
    assert cluster.bodies() == []


def test_a_half_message_without_producers_waits_and_its_checks_are_not_counted(world: World) -> None:
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
    assert cluster.bodies() == [b"waits"]


def test_a_connected_producer_is_checked_even_for_an_expired_half_message(world: World) -> None:
    """As after a clock jump before a failover, or with a retention shorter than the check interval."""
    cluster = Cluster(world, 2, fileReservedSeconds=1, **SOON | {"transactionCheckInterval": 3_000})
    cluster.start_up()

    async def play() -> None:
        async with cluster.client() as client, client.transactions("PG", lambda message: COMMIT) as producer:
            await producer.send("orders", b"asked for")
            await asyncio.sleep(5)

    cluster.run(play())
    assert cluster.bodies() == [b"asked for"]


def fail_over(cluster: Cluster, world: World) -> None:
    """Kills the master, waits for the next one, and restarts the former one."""
    former = cluster.master
    former.kill()
    world.run_until(lambda: bool(cluster.masters), 30_000)
    cluster.start(former)
    cluster.wait_in_sync(len(cluster.brokers), 30_000)


@pytest.mark.parametrize("ops_written", [False, True])
def test_a_transaction_is_ended_once_across_a_failover(world: World, ops_written: bool) -> None:
    cluster = Cluster(world, 3, transactionOpBatchInterval=10 if ops_written else 60_000, **SOON)
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

    async def finish(client: Client, producer: Any, made: list[Transaction]) -> None:
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
    fail_over(cluster, world)
    cluster.run(finish(client, producer, made))
    world.run_for_ms(12_000 if ops_written else 80_000)  # until op records name the ended half messages
    cluster.run(client.close())
    assert cluster.bodies() == [b"one", b"three"]
    assert set(asked) == {b"three"}
    app = cluster.app(cluster.master)
    assert open_count(app) == 0
    assert app.requests.transactions.first_open() is None


def test_a_former_master_forwards_the_end_of_a_transaction(world: World) -> None:
    cluster = Cluster(world, 2)
    cluster.start_up()
    former = cluster.app(cluster.master)
    slave = cluster.slaves[0]

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
    assert cluster.bodies() == [b"handed over"]


def test_delayed_and_timer_messages_are_refused_in_a_transaction(world: World) -> None:
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


def test_an_end_that_is_neither_commit_nor_rollback_is_refused(world: World) -> None:
    """Upstream sends no answer."""
    cluster = Cluster(world, 2)
    cluster.start_up()

    async def play() -> list[tuple[int, str | None]]:
        async with cluster.client() as client, client.transactions("PG", unknown) as producer:
            result = (await producer.send("orders", b"open")).result
            place = int(result.offset_message_id[-16:], 16)
            answers = []
            for state in (0, 4, 9):
                header = EndTransactionHeader("PG", result.queue_offset, place, state)
                address = cluster.app(cluster.master).address
                reply = await cluster.ask(address, RequestCode.END_TRANSACTION, header)
                answers.append((reply.code, reply.remark))
            return answers

    why = "ends nothing: 8 commits, 12 rolls back; the transaction stays open"
    assert cluster.run(play()) == [(29, f"commitOrRollback {state} {why}") for state in (0, 4, 9)]
    assert open_count(cluster.app(cluster.master)) == 1


def test_ends_with_a_wrong_group_offset_or_id_are_refused(world: World) -> None:
    cluster = Cluster(world, 2)
    cluster.start_up()

    async def play() -> list[tuple[int, str | None]]:
        async with cluster.client() as client, client.transactions("PG", unknown) as producer:
            result = (await producer.send("orders", b"open")).result
            plain = await client.producer("PG").send("orders", b"plain")
            place, queue_offset = int(result.offset_message_id[-16:], 16), result.queue_offset
            answers = []
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
                answers.append((reply.code, reply.remark))
            return answers

    not_found = "Find prepared transaction message failed"
    assert cluster.run(play()) == [
        (1, "The producer group wrong"),
        (1, "The transaction state table offset wrong"),
        (1, f"{not_found}: another is not there any more"),
        *[(1, not_found)] * 3,
    ]
    assert open_count(cluster.app(cluster.master)) == 1
    assert OP_HALF_TOPIC not in {topic for topic, _ in cluster.app(cluster.master).store.queues()}


def test_a_commit_without_an_op_record_is_not_open_for_the_next_master(world: World) -> None:
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
    fail_over(cluster, world)
    world.run_for_ms(25_000)
    cluster.run(client.close())
    assert cluster.bodies() == [b"one", b"open", b"two"]
    assert asked == [b"open"]


@pytest.mark.parametrize("made", [Cluster, GroupSet])
def test_messages_stored_before_max_message_size_was_lowered_are_still_delivered(
    world: World, made: Callable[..., Cluster]
) -> None:
    """A half message is put back, checked and committed; a delayed message is delivered."""
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

    assert cluster.run(answer()) is ResponseCode.MESSAGE_ILLEGAL, (
        "a new message is checked against the lower limit"
    )
    assert cluster.bodies() == [delayed, body]
    assert open_count(cluster.app(cluster.master)) == 0


def test_a_half_message_that_cannot_be_put_back_is_checked_and_committed(world: World) -> None:
    """A former Java master stored it with 32,767 bytes of properties."""
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
    fail_over(cluster, world)
    world.run_for_ms(25_000)
    cluster.run(client.close())
    assert sorted(asked) == 3 * [b"java's"] + 3 * [b"ours"]
    assert cluster.bodies() == [b"java's", b"ours"]
    app = cluster.app(cluster.master)
    assert open_count(app) == 0 and app.requests.transactions.first_open() is None
