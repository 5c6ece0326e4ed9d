"""Java's TransactionMQProducer 5.3.3 against our cluster, through a planned and an unplanned change of
master, and Java's broker alternating with ours on one store."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from localcluster.layout import BROKER_SET, CLUSTER_NAME
from mqadmin.replies import SyncStateInfo
from mqclient.client import Client
from mqclient.errors import PullFailed, RouteUnknown
from scripts.peers.javapeer import broker_missing, missing
from scripts.peers.javaserver import NO_SPIN
from scripts.peers.waits import WAIT_MS
from tests.interop.conftest import ASKED_SOON
from tests.interop.javabroker import java_broker
from tests.interop.javaclient import JavaClient
from tests.support.realpair import TOPIC, RealPair, ours

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]
DEALS = "Deals"
POLL_S = 0.2
STATES = {"commit": "COMMIT_MESSAGE", "rollback": "ROLLBACK_MESSAGE", "unknown": "UNKNOW"}
ARRIVED_S = 0.5
"""By then all sent messages are read, and commits are in the log, where a Java broker looks for them."""


def whole(cluster: Cluster) -> SyncStateInfo:
    return asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))


async def read(namesrv: str, topic: str) -> Counter[str]:
    """Empty while no broker leads."""
    found: Counter[str] = Counter()
    async with Client(namesrv) as client:
        consumer = client.consumer("DealReaders")
        try:
            for queue in await consumer.queues(topic):
                end = await consumer.max_offset(queue)
                async for message in consumer.read(queue, 0, end):
                    found[message.body.decode()] += 1
        except (RouteUnknown, PullFailed):
            return Counter()
    return found


class Deals:
    """The transactions of one test. `expected`: the bodies that consumers must get. A transaction that was
    sent again after a late answer may come twice: its first half message stays open and ends by a check.
    `repeated` are others that may."""

    def __init__(self, java: JavaClient, namesrv: str, topic: str) -> None:
        self.expected: set[str] = set()
        self.repeated: set[str] = set()
        self._java, self._namesrv, self._topic = java, namesrv, topic
        self._asked: Counter[str] = Counter()
        self._ended: set[str] = set()

    def send(self, body: str, first: str, later: str) -> None:
        answer = self._java.ask("tx", "DealMakers", self._topic, body, first, later)
        assert answer["status"] == STATES[first]
        if answer["tries"] > 1:
            self.repeated.add(body)

    def send_all_kinds(self, name: str) -> None:
        """One transaction of each kind."""
        for first, later in (
            ("commit", "rollback"), ("rollback", "commit"), ("unknown", "commit"), ("unknown", "rollback"),
        ):  # fmt: skip
            self.send(f"{name}-{first}-{later}", first, later)
        self.expected |= {f"{name}-commit-rollback", f"{name}-unknown-commit"}

    def read_when(self) -> None:
        """All expected messages arrive once, and no others."""

        async def until() -> None:
            async with asyncio.timeout(WAIT_MS / 1000):
                found = await read(self._namesrv, self._topic)
                while not found.keys() >= self.expected:
                    await asyncio.sleep(POLL_S)
                    found = await read(self._namesrv, self._topic)
            judged = {body: times for body, times in found.items() if body not in self.repeated}
            assert judged == dict.fromkeys(self.expected - self.repeated, 1)

        asyncio.run(until())

    def judge_checks(self) -> None:
        """No broker has checked a transaction that was committed at once and read by the last call. Before
        that, a broker may check a transaction whose end is slow."""
        time.sleep(ARRIVED_S)
        asked = Counter(self._java.ask("txchecked", "DealMakers")["bodies"])
        assert not (asked - self._asked).keys() & self._ended - self.repeated, "no more checks arrive"
        self._asked, self._ended = asked, {body for body in self.expected if "-commit-" in body}


def test_java_transactions_end_once_through_changes_of_master(java: JavaClient, cluster: Cluster) -> None:
    namesrv = cluster.layout.namesrv
    before = whole(cluster)
    java.admin("updateTopic", "-n", namesrv, "-c", CLUSTER_NAME, "-t", DEALS, "-r", 2, "-w", 2)
    deals = Deals(java, namesrv, DEALS)
    deals.send_all_kinds("quiet")
    deals.send("asked-after-hand-over", "unknown", "unknown")
    chosen = next(replica for replica in before.in_sync if replica.broker_id != before.master_id)
    java.admin(
        "electMaster",
        *("-a", cluster.layout.address("controller-0"), "-b", chosen.broker_id),
        *("-bn", BROKER_SET, "-c", CLUSTER_NAME),
    )
    deals.send_all_kinds("handed-over")
    java.ask("txlater", "DealMakers", "asked-after-hand-over", "commit")
    deals.expected.add("asked-after-hand-over")
    whole(cluster)
    deals.read_when()
    deals.judge_checks()
    deals.send("asked-after-kill", "unknown", "commit")
    master = cluster.layout.name_of(whole(cluster).master_address or "")
    assert master is not None
    cluster.kill([master])
    deals.send_all_kinds("killed")
    deals.expected.add("asked-after-kill")
    deals.read_when()
    deals.judge_checks()
    cluster.start([master])
    whole(cluster)
    deals.read_when()
    deals.judge_checks()
    deals.send("last", "unknown", "commit")
    deals.expected.add("last")
    deals.read_when()
    deals.judge_checks()
    java.ask("txclose", "DealMakers")


@pytest.mark.skipif(broker_missing() is not None, reason=str(broker_missing()))
def test_a_store_with_transactions_moves_from_a_java_broker_to_ours_and_back(tmp_path: Path) -> None:
    """Each broker checks the transactions that the other left open, and none that the other ended."""
    settings = {
        **ASKED_SOON,
        "transactionOpBatchInterval": 200,
        "timerWheelEnable": "false",
        **NO_SPIN,
        "maxHashSlotNum": 100,
    }
    settings |= {"maxIndexNum": 400, "brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": 1 << 20}
    home = tmp_path / "home"
    home.mkdir()
    with (
        RealPair(tmp_path / "pair", [java_broker], **settings) as pair,
        JavaClient(pair.namesrv, home) as java,
    ):
        deals = Deals(java, pair.namesrv, TOPIC)
        for number, command in enumerate((java_broker, ours, java_broker, ours)):
            pair.commands[0] = command
            pair.start(0)
            if not number:
                pair.create_topic()
            if number:
                java.ask("txlater", "DealMakers", f"left-{number - 1}", "commit")
                deals.expected.add(f"left-{number - 1}")
            if (
                command is java_broker
            ):  # it may check until its commit is in the op topic, and commit each time
                deals.repeated |= {f"left-{number - 1}", f"turn-{number}-unknown-commit"}
            deals.send_all_kinds(f"turn-{number}")
            deals.read_when()
            deals.send(f"left-{number}", "unknown", "unknown")
            deals.judge_checks()
            pair.kill("broker-0")
    shutil.rmtree(tmp_path / "pair")
