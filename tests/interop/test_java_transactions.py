"""Java's TransactionMQProducer 5.3.3 against a cluster of ours, through a planned and an unplanned change of master, and Java's
broker in turn with ours on one store."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from localcluster.layout import BROKER_SET, CLUSTER_NAME
from mqadmin.replies import SyncState
from mqclient.client import Client
from mqclient.errors import PullFailed, RouteUnknown
from tests.interop.conftest import ASKED_SOON
from tests.interop.javapeer import JavaClient, broker_missing, missing
from tests.interop.javaserver import NO_SPIN, java_broker
from tests.realpair import TOPIC, RealPair, ours
from tests.waits import WAIT_MS

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]
DEALS = "Deals"
POLL_S = 0.2


def whole(cluster: Cluster) -> SyncState:
    return asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))


async def read(namesrv: str, topic: str) -> Counter[str]:
    """Nothing while no broker leads."""
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


def read_when(namesrv: str, expected: set[str], topic: str = DEALS) -> None:
    """All of these come, each once, and nothing else."""

    async def until() -> None:
        async with asyncio.timeout(WAIT_MS / 1000):
            found = await read(namesrv, topic)
            while not found.keys() >= expected:
                await asyncio.sleep(POLL_S)
                found = await read(namesrv, topic)
        assert found == Counter(expected)

    asyncio.run(until())


def all_kinds(java: JavaClient, name: str, topic: str = DEALS) -> set[str]:
    """One transaction of each kind; the bodies that consumers are to get."""
    states = {"commit": "COMMIT_MESSAGE", "rollback": "ROLLBACK_MESSAGE", "unknown": "UNKNOW"}
    for first, later in (
        ("commit", "rollback"), ("rollback", "commit"), ("unknown", "commit"), ("unknown", "rollback"),
    ):  # fmt: skip
        told = java.ask("tx", "DealMakers", topic, f"{name}-{first}-{later}", first, later)
        assert told == {"status": states[first]}
    return {f"{name}-commit-rollback", f"{name}-unknown-commit"}


def asked_for(java: JavaClient) -> Counter[str]:
    """What brokers asked the producer about until now, and how often."""
    return Counter(java.ask("txchecked", "DealMakers")["bodies"])


def test_java_transactions_end_once_through_changes_of_master(java: JavaClient, cluster: Cluster) -> None:
    namesrv = cluster.layout.namesrv
    before = whole(cluster)
    java.admin("updateTopic", "-n", namesrv, "-c", CLUSTER_NAME, "-t", DEALS, "-r", 2, "-w", 2)
    expected = all_kinds(java, "quiet")
    java.ask("tx", "DealMakers", DEALS, "asked-after-hand-over", "unknown", "unknown")
    chosen = next(replica for replica in before.in_sync if replica.broker_id != before.master_id)
    java.admin(
        "electMaster",
        *("-a", cluster.layout.address("controller-0"), "-b", chosen.broker_id),
        *("-bn", BROKER_SET, "-c", CLUSTER_NAME),
    )
    expected |= all_kinds(java, "handed-over")
    java.ask("txlater", "DealMakers", "asked-after-hand-over", "commit")
    expected.add("asked-after-hand-over")
    whole(cluster)
    read_when(namesrv, expected)
    before_kill = asked_for(java)
    java.ask("tx", "DealMakers", DEALS, "asked-after-kill", "unknown", "commit")
    master = cluster.layout.name_of(whole(cluster).master_address or "")
    assert master is not None
    cluster.kill([master])
    expected |= all_kinds(java, "killed") | {"asked-after-kill"}
    read_when(namesrv, expected)
    cluster.start([master])
    whole(cluster)
    read_when(namesrv, expected)
    later = (asked_for(java) - before_kill).keys()
    assert "asked-after-kill" in later
    assert not later & {"quiet-commit-rollback", "handed-over-commit-rollback"}, (
        "they were seen to be committed"
    )
    java.ask("txclose", "DealMakers")


@pytest.mark.skipif(broker_missing() is not None, reason=str(broker_missing()))
def test_a_store_goes_on_from_a_java_broker_to_ours_and_back(tmp_path: Path) -> None:
    """What one left open the other asks for, and what one ended the other does not. Whoever has just begun may ask for what is
    being ended meanwhile, so that only what others ask for is judged."""
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
        expected: set[str] = set()
        ended: set[str] = set()
        before: Counter[str] = Counter()
        for number, command in enumerate((java_broker, ours, java_broker, ours)):
            pair.commands[0] = command
            pair.start(0)
            if not number:
                pair.create_topic()
            if number:
                java.ask("txlater", "DealMakers", f"left-{number - 1}", "commit")
                expected.add(f"left-{number - 1}")
            expected |= all_kinds(java, f"turn-{number}", TOPIC)
            read_when(pair.namesrv, expected, TOPIC)
            java.ask("tx", "DealMakers", TOPIC, f"left-{number}", "unknown", "unknown")
            pair.kill("broker-0")
            asked = asked_for(java)
            assert not (asked - before).keys() & ended
            before = asked
            ended.add(f"turn-{number}-commit-rollback")
        assert {f"left-{number}" for number in range(3)} <= before.keys()
    shutil.rmtree(tmp_path / "pair")
