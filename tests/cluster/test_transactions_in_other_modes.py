"""Messages in transactions in Raft mode and in a pair, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from messagestore.systemtopics import OP_HALF_TOPIC
from mqclient.client import Client
from mqclient.message import StoredMessage
from mqclient.transactions import TransactionProducer, TransactionState
from simulation.kernel.world import World
from tests.cluster.groupset import GroupSet
from tests.cluster.pairset import Pair

SOON = {"transactionTimeOut": 500, "transactionCheckInterval": 1_000}
COMMIT = TransactionState.COMMIT


class Asked:
    """Commits every checked message, and records its body."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def __call__(self, message: StoredMessage) -> TransactionState:
        self.bodies.append(message.body)
        return COMMIT


async def three_kinds(producer: TransactionProducer, name: bytes) -> None:
    """Sends three messages: one is committed, one rolled back, one left open."""
    await (await producer.send("orders", name + b" committed")).commit()
    await (await producer.send("orders", name + b" rolled back")).rollback()
    await producer.send("orders", name + b" open")


async def commits_and_an_open_one(client: Client, asked: Asked) -> TransactionProducer:
    producer = client.transactions("PG", asked)
    await producer.__aenter__()
    for body in (b"one", b"two"):
        await (await producer.send("orders", body)).commit()
    await producer.send("orders", b"open")
    return producer


def test_a_raft_mode_set_ends_each_transaction_once_across_a_failover(world: World) -> None:
    group = GroupSet(world, **SOON)
    group.start_up()
    asked = Asked()

    async def play(name: bytes) -> None:
        async with group.client() as client, client.transactions("PG", asked) as producer:
            await three_kinds(producer, name)
            await asyncio.sleep(4)

    group.run(play(b"first"))
    former = group.master
    former.kill()
    group.wait_for_master()
    group.run(play(b"second"))
    group.start(former)
    world.run_for_ms(8_000)
    assert group.bodies() == [
        b"first committed", b"first open", b"second committed", b"second open"
    ]  # fmt: skip
    assert asked.bodies == [b"first open", b"second open"]
    assert group.app(group.master).requests.open_transactions == 0


def test_commits_are_found_in_the_entries_of_a_raft_log(world: World) -> None:
    group = GroupSet(world, transactionOpBatchInterval=600_000, **SOON)
    group.start_up()
    asked, client = Asked(), group.client()
    group.run(commits_and_an_open_one(client, asked))
    former = group.master
    assert group.app(former).store.max_queue_offset(OP_HALF_TOPIC, 0) == 0
    former.kill()
    group.wait_for_master()
    world.run_for_ms(25_000)
    group.run(client.close())
    assert group.bodies() == [b"one", b"open", b"two"]
    assert asked.bodies == [b"open"]


@pytest.mark.parametrize("ops_written", [True, False])
def test_a_pair_continues_open_transactions_after_its_master_died(world: World, ops_written: bool) -> None:
    pair = Pair(world, transactionOpBatchInterval=10 if ops_written else 600_000, **SOON)
    pair.start_up()
    asked, client = Asked(), pair.client()
    pair.run(commits_and_an_open_one(client, asked))
    world.run_for_ms(200)
    pair.master.kill()
    pair.start(pair.master)
    world.run_until(pair.leads, 20_000)
    world.run_for_ms(25_000)
    pair.run(client.close())
    assert sorted(message.body for message in pair.read()) == [b"one", b"open", b"two"]
    assert asked.bodies == [b"open"]
    assert pair.app(pair.slave).requests.transactions.open is None
