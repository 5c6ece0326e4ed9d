"""The broker's own offsets, of delayed messages and of transactions, are never ahead of their log.

That holds through power losses and promotions of slaves.
"""

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
from tests.cluster.brokerset import Cluster
from tests.cluster.pairset import Pair

LATE_MS = 4_000
QUICK_TABLES_SLOW_LOG = {"flushConsumerOffsetInterval": 100, "flushIntervalCommitLog": LATE_MS}
QUIET = {"transactionTimeOut": 600_000, "transactionCheckInterval": 600_000}


async def send_later(brokers: Pair | Cluster) -> None:
    async with brokers.client() as client:
        await client.producer("producers").send("orders", b"later", properties={"DELAY": "1"})


def all_on_disk(app: BrokerApp) -> bool:
    return app.store.flushed_offset() == app.store.max_offset()


def cut_power(*nodes: Node) -> None:
    """Cuts the power of the nodes; unsynced data is lost."""
    for node in nodes:
        node.disk.share_kept = 0.0
        node.kill(power_cut=True)


def start_instead_of_master(pair: Pair, successor: Node) -> None:
    """Kills all nodes and starts `successor` as master, as an operator would."""
    for node in pair.nodes:
        if node.running:
            node.kill()
    pair.nodes.remove(successor)
    pair.nodes.insert(0, successor)
    pair.start(pair.master)
    pair.world.run_until(pair.leads, 20_000)


@contextmanager
def sent_nothing_more(pair: Pair, *slaves: Node) -> Iterator[None]:
    """The slaves get no more log from their master, but still its tables."""
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
def test_a_delivery_lost_in_a_power_cut_is_repeated(seed: int) -> None:
    with World(seed) as world:
        pair = Pair(
            world, slaves=0, master_role="ASYNC_MASTER", messageDelayLevel="6s 9s", **QUICK_TABLES_SLOW_LOG
        )
        pair.start_up()
        pair.run(send_later(pair))
        world.run_until(lambda: all_on_disk(pair.app(pair.master)), 2 * LATE_MS)
        world.run_until(lambda: next_delayed(pair, pair.master) == 1, 10_000)
        world.run_for_ms(300)  # until the table is written
        cut_power(pair.master)
        pair.start(pair.master)
        world.run_until(pair.leads, 20_000)
        world.run_for_ms(8_000)
        assert bodies(pair) == [b"later"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_promoted_slave_repeats_a_delivery_lost_in_a_power_cut(seed: int) -> None:
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


def test_a_set_repeats_a_delivery_lost_in_a_power_cut_of_all_brokers() -> None:
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
def test_a_promoted_lagging_slave_delivers_messages_it_holds_no_copy_of(role: str) -> None:
    with World(4) as world:
        pair = Pair(world, slaves=2, messageDelayLevel="6s 9s", master_role=role)
        pair.start_up()
        pair.run(send_later(pair))
        lags = pair.nodes[2]
        world.run_until(lambda: pair.caught_up(lags), 5_000)
        with sent_nothing_more(pair, lags):
            world.run_until(lambda: next_delayed(pair, pair.slave) == 1, 20_000)
            world.run_for_ms(3_000)
            assert pair.end(lags) < pair.end(pair.slave)
            start_instead_of_master(pair, lags)
        world.run_for_ms(8_000)
        assert bodies(pair) == [b"later"]


def test_a_lagging_slave_copies_the_offsets_once_it_caught_up() -> None:
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


def test_a_slave_with_a_diverged_log_copies_no_delay_offsets() -> None:
    with World(9) as world:
        pair = Pair(world, slaves=2, messageDelayLevel="6s 9s", flushIntervalCommitLog=600_000)
        pair.start_up()
        emptied, stays_out = pair.slave, pair.nodes[2]
        pair.run(send_later(pair))
        pair.send(*[b"more".ljust(500)] * 30)
        world.run_until(lambda: pair.caught_up(stays_out), 5_000)
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
        assert pair.end(pair.master) < pair.end(stays_out), (
            "otherwise the delivery would be in the log of the slave, too"
        )
        start_instead_of_master(pair, stays_out)
        world.run_for_ms(8_000)
        assert bodies(pair).count(b"later") == 1


class Deals:
    """Three half messages, of which the first and the last are committed."""

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
        await asyncio.sleep(3.5)  # until op records name them

    def close(self) -> None:
        self.pair.run(self.client.close())


def transactions(pair: Pair) -> Transactions:
    return pair.app(pair.master).requests.transactions


def test_a_master_that_lost_commits_in_a_power_cut_reopens_their_half_messages() -> None:
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
        assert transactions(pair).open_count == lost, "transactions without a commit in the log are open"


@pytest.mark.parametrize("role", ["SYNC_MASTER", "ASYNC_MASTER"])
@pytest.mark.parametrize("slaves", [1, 2])
def test_a_promoted_slave_reopens_half_messages_whose_commits_it_is_missing(slaves: int, role: str) -> None:
    with World(7) as world:
        pair = Pair(world, slaves=slaves, master_role=role, syncFlushTimeout=500, **QUIET)
        pair.start_up()
        deals = Deals(pair)
        pair.run(deals.send())
        lags = pair.nodes[-1]
        world.run_until(lambda: pair.caught_up(lags), 5_000)
        world.run_until(lambda: pair.app(lags).tables.topics.find("orders") is not None, 5_000)
        with sent_nothing_more(pair, lags):
            pair.run(deals.end())
            world.run_for_ms(3_000)
            assert pair.end(lags) < pair.end(pair.master)
            deals.close()
            start_instead_of_master(pair, lags)
        world.run_until(lambda: transactions(pair).open is not None, 5_000)
        world.run_for_ms(200)  # the name server learns the new master
        assert bodies(pair) == []
        assert transactions(pair).open_count == 3
