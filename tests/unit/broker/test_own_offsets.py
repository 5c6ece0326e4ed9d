"""The offsets that a broker keeps for itself, of delayed messages and of transactions: never ahead of the log that they
tell of, whoever loses power and whoever takes the master's place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from unittest.mock import patch

import pytest

from broker.app import BrokerApp
from broker.transactions.transactions import Transactions
from ha.classic.master import ClassicMasterLink
from ha.classic.mastership import PairMastership
from ha.service.haservice import HAService
from mqclient.errors import EndOutcomeUnknown
from mqclient.transactions import Transaction, TransactionProducer, TransactionState
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.unit.broker.brokerset import Cluster
from tests.unit.broker.pairset import Pair

LATE_MS = 4_000
QUICK_TABLES_SLOW_LOG = {"flushConsumerOffsetInterval": 100, "flushIntervalCommitLog": LATE_MS}
QUIET = {"transactionTimeOut": 600_000, "transactionCheckInterval": 600_000}


async def send_later(brokers: Pair | Cluster) -> None:
    async with brokers.client() as client:
        await client.producer("producers").send("orders", b"later", properties={"DELAY": "1"})


def all_on_disk(app: BrokerApp) -> bool:
    return app.store.flushed_offset() == app.store.max_offset()


def cut_power(*nodes: Node) -> None:
    """What was not synced is gone."""
    for node in nodes:
        node.disk.share_kept = 0.0
        node.kill(power_cut=True)


def start_instead_of_master(pair: Pair, successor: Node) -> None:
    """The operator's work, behind the death of all."""
    for node in pair.nodes:
        if node.running:
            node.kill()
    pair.nodes.remove(successor)
    pair.nodes.insert(0, successor)
    pair.start(pair.master)
    pair.world.run_until(pair.leads, 20_000)


@contextmanager
def sent_nothing_more(pair: Pair, *slaves: Node) -> Iterator[None]:
    """Their master's log does not come any more; its tables do."""
    ha = pair.app(pair.master).ha
    assert isinstance(ha, HAService) and isinstance(ha._end, PairMastership)
    hosts = [f"{slave.host}:" for slave in slaves]
    silent = [each.link for each in ha._end.connections if any(host in each.address for host in hosts)]
    assert len(silent) == len(slaves)
    writable = ClassicMasterLink.writable

    def unless_silent(link: ClassicMasterLink, now_ms: int) -> object:
        return [] if link in silent else writable(link, now_ms)

    with patch.object(ClassicMasterLink, "writable", unless_silent):
        yield


def next_delayed(pair: Pair, node: Node) -> int:
    return pair.app(node).tables.delays.next_offset(1)


def bodies(pair: Pair) -> list[bytes]:
    return [message.body for message in pair.read()]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_delivery_that_a_power_cut_took_is_made_again(seed: int) -> None:
    with World(seed) as world:
        pair = Pair(
            world, slaves=0, master_role="ASYNC_MASTER", messageDelayLevel="6s 9s", **QUICK_TABLES_SLOW_LOG
        )
        pair.start_up()
        pair.run(send_later(pair))
        world.run_until(lambda: all_on_disk(pair.app(pair.master)), 2 * LATE_MS)
        world.run_until(lambda: next_delayed(pair, pair.master) == 1, 10_000)
        world.run_for_ms(300)  # the table is written
        cut_power(pair.master)
        pair.start(pair.master)
        world.run_until(pair.leads, 20_000)
        world.run_for_ms(8_000)
        assert bodies(pair) == [b"later"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_slave_that_lost_a_delivery_with_its_power_makes_it_in_its_masters_place(seed: int) -> None:
    with World(seed) as world:
        pair = Pair(world, messageDelayLevel="6s 9s", **QUICK_TABLES_SLOW_LOG)
        pair.start_up()
        pair.run(send_later(pair))
        world.run_until(lambda: all_on_disk(pair.app(pair.slave)), 2 * LATE_MS)
        world.run_until(lambda: next_delayed(pair, pair.slave) == 1, 10_000)
        world.run_for_ms(300)
        cut_power(*pair.nodes)
        start_instead_of_master(pair, pair.slave)
        world.run_for_ms(8_000)
        assert bodies(pair) == [b"later"]


def test_a_set_that_lost_a_delivery_when_all_lost_power_makes_it_again() -> None:
    with World(8) as world:
        cluster = Cluster(world, 3, messageDelayLevel="6s 9s", **QUICK_TABLES_SLOW_LOG)
        cluster.start_up()
        apps = [cluster.app(node) for node in cluster.brokers]
        cluster.run(send_later(cluster))
        world.run_until(lambda: all(map(all_on_disk, apps)), 2 * LATE_MS)
        world.run_until(lambda: all(app.tables.delays.next_offset(1) == 1 for app in apps), 10_000)
        world.run_for_ms(300)
        cut_power(*cluster.brokers)
        for node in cluster.brokers:
            cluster.start(node)
        cluster.wait_in_sync(3, 60_000)
        world.run_for_ms(8_000)
        assert [message.body for message in cluster.run(cluster.read_all())] == [b"later"]


@pytest.mark.parametrize("role", ["SYNC_MASTER", "ASYNC_MASTER"])
def test_of_two_slaves_the_one_that_lagged_delivers_what_it_has_no_copy_of(role: str) -> None:
    with World(4) as world:
        pair = Pair(world, slaves=2, messageDelayLevel="6s 9s", master_role=role)
        pair.start_up()
        pair.run(send_later(pair))
        lags = pair.nodes[2]
        world.run_until(lambda: pair.level(lags), 5_000)
        with sent_nothing_more(pair, lags):
            world.run_until(lambda: next_delayed(pair, pair.slave) == 1, 20_000)
            world.run_for_ms(3_000)
            assert pair.end(lags) < pair.end(pair.slave)
            start_instead_of_master(pair, lags)
        world.run_for_ms(8_000)
        assert bodies(pair) == [b"later"]


def test_a_slave_that_was_behind_takes_the_offsets_over_once_it_is_not() -> None:
    with World(5) as world:
        pair = Pair(world, slaves=2, messageDelayLevel="1s 2s")
        pair.start_up()
        lags = pair.nodes[2]
        with sent_nothing_more(pair, lags):
            pair.run(send_later(pair))
            world.run_until(lambda: next_delayed(pair, pair.slave) == 1, 20_000)
            world.run_for_ms(2_000)
            assert next_delayed(pair, lags) == 0
        pair.send(b"more")
        world.run_until(lambda: next_delayed(pair, lags) == 1, 20_000)


def test_a_slave_that_stays_out_copies_nothing_of_what_another_log_delivered() -> None:
    with World(9) as world:
        pair = Pair(world, slaves=2, messageDelayLevel="6s 9s", flushIntervalCommitLog=600_000)
        pair.start_up()
        emptied, stays_out = pair.slave, pair.nodes[2]
        pair.run(send_later(pair))
        pair.send(*[b"more".ljust(500)] * 30)
        world.run_until(lambda: pair.level(stays_out), 5_000)
        cut_power(pair.master, emptied)
        emptied.disk.wipe()
        pair.start(pair.master)
        world.run_until(pair.leads, 20_000)
        assert pair.end(pair.master) < pair.end(stays_out), "its disk kept everything: take another seed"
        pair.create_topic()
        pair.start(emptied)
        world.run_until(lambda: pair.slaves_in_step() == 1, 20_000)
        pair.run(send_later(pair))
        world.run_until(lambda: next_delayed(pair, emptied) == 1, 20_000)
        world.run_for_ms(3_000)
        assert pair.end(pair.master) < pair.end(stays_out), "what it told of would stand there, too"
        start_instead_of_master(pair, stays_out)
        world.run_for_ms(8_000)
        assert bodies(pair).count(b"later") == 1


class Deals:
    """Three halves, of which the first and the last are committed."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.client = pair.client()
        self.producer: TransactionProducer = self.client.transactions(
            "PG", lambda _: TransactionState.UNKNOWN
        )
        self.halves: list[Transaction] = []

    async def send(self) -> None:
        await self.producer.__aenter__()
        self.halves = [await self.producer.send("orders", body) for body in (b"one", b"two", b"three")]

    async def end(self) -> None:
        for half in (self.halves[0], self.halves[2]):
            with suppress(EndOutcomeUnknown):
                await half.commit()
        await asyncio.sleep(3.5)  # and that is told

    def close(self) -> None:
        self.pair.run(self.client.close())


def transactions(pair: Pair) -> Transactions:
    return pair.app(pair.master).requests.transactions


def test_a_master_that_lost_commits_with_its_power_asks_for_their_halves() -> None:
    with World(6) as world:
        pair = Pair(world, **QUICK_TABLES_SLOW_LOG, **QUIET)
        pair.start_up()
        deals = Deals(pair)
        pair.run(deals.send())
        world.run_until(lambda: all_on_disk(pair.app(pair.master)), 2 * LATE_MS)
        pair.run(deals.end())
        cut_power(*pair.nodes)
        deals.close()
        pair.start(pair.master)
        world.run_until(pair.leads, 20_000)
        world.run_until(lambda: transactions(pair).open is not None, 5_000)
        lost = 3 - len(bodies(pair))
        assert transactions(pair).open_count == lost, "what is not committed there is open"


@pytest.mark.parametrize("role", ["SYNC_MASTER", "ASYNC_MASTER"])
@pytest.mark.parametrize("slaves", [1, 2])
def test_a_slave_in_its_masters_place_asks_for_halves_whose_commits_it_lacks(slaves: int, role: str) -> None:
    with World(7) as world:
        pair = Pair(world, slaves=slaves, master_role=role, syncFlushTimeout=500, **QUIET)
        pair.start_up()
        deals = Deals(pair)
        pair.run(deals.send())
        lags = pair.nodes[-1]
        world.run_until(lambda: pair.level(lags), 5_000)
        world.run_until(lambda: pair.app(lags).tables.topics.find("orders") is not None, 5_000)
        with sent_nothing_more(pair, lags):
            pair.run(deals.end())
            world.run_for_ms(3_000)
            assert pair.end(lags) < pair.end(pair.master)
            deals.close()
            start_instead_of_master(pair, lags)
        world.run_until(lambda: transactions(pair).open is not None, 5_000)
        world.run_for_ms(200)  # the name server hears of it
        assert bodies(pair) == []
        assert transactions(pair).open_count == 3
