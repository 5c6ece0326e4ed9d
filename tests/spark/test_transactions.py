"""In a real Spark session: only committed transactions of a store are read, not rolled back or open ones."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from localcluster.cluster import Cluster
from localcluster.waiting import NotYet, wait_for
from mqclient.client import Client
from mqclient.message import StoredMessage
from mqclient.transactions import TransactionState
from mqruntime.clock import SystemClock
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS
from sparkreplay.engine.engine import missing_for_spark
from tests.unit.sparkreplay.storefolder import StoreFolder

pytestmark = [
    pytest.mark.skipif(
        missing_for_spark() is not None, reason=f"Spark cannot run here: {missing_for_spark()}"
    ),
    pytest.mark.filterwarnings("ignore"),
]

TOPIC = "Booked"
EACH = 20
SETTINGS = {"transactionTimeOut": "500", "transactionCheckInterval": "1000", **NOBODY_IS_LATE}


def of_kind(kind: str) -> set[str]:
    return {f"{kind}-{number}" for number in range(EACH)}


def read(spark: Any, path: Path, **options: str) -> list[tuple[str, str, str]]:
    """Topic, body and kind of each row, in the order of the log."""
    frame = (
        spark.read.format("rocketmq")
        .options(path=str(path), columns="full", splitBytes="8192", **options)
        .load()
    )
    rows = frame.select("physical_offset", "topic", "body", "transaction").collect()
    return [(row.topic, bytes(row.body).decode(), row.transaction) for row in sorted(rows)]


async def booked(namesrv: str) -> None:
    """Sends plain messages and transactions of each kind in turn; open ones stay open at each check."""

    def unknown(message: StoredMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    async with (
        Client(namesrv, clock=SystemClock(), random=random.Random(1)) as client,
        client.transactions("Booking", unknown) as producer,
    ):
        for number in range(EACH):
            await client.producer("Plain").send(TOPIC, b"plain-%d" % number, timeout_ms=WAIT_MS)
            committed = await producer.send(TOPIC, b"committed-%d" % number, timeout_ms=WAIT_MS)
            back = await producer.send(TOPIC, b"back-%d" % number, timeout_ms=WAIT_MS)
            await producer.send(TOPIC, b"open-%d" % number, timeout_ms=WAIT_MS)
            await committed.commit(timeout_ms=WAIT_MS)
            await back.rollback(timeout_ms=WAIT_MS)


async def committed_when_asked(namesrv: str) -> None:
    """The producer group returns and commits each open transaction at its check."""
    asked: set[bytes] = set()

    def check(message: StoredMessage) -> TransactionState:
        asked.add(message.body)
        return TransactionState.COMMIT

    async def all_there() -> None:
        found = 0
        for queue in await consumer.queues(TOPIC):
            found += await consumer.max_offset(queue)
        if found < 3 * EACH:
            raise NotYet(f"{found} of {3 * EACH} messages can be read; asked for were {len(asked)}")

    async with (
        Client(namesrv, clock=SystemClock(), random=random.Random(2)) as client,
        client.transactions("Booking", check, topics=[TOPIC]),
    ):
        consumer = client.consumer("Looking")
        await wait_for("open ones are committed", all_there, WAIT_MS)


def test_open_transactions_of_a_broker_are_read_once_they_are_committed(spark: Any, tmp_path: Path) -> None:
    with Cluster.create(tmp_path / "cluster", controllers=1, brokers=1, broker_settings=SETTINGS) as cluster:
        store = cluster.directory / "broker-0"
        cluster.start()
        asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
        asyncio.run(cluster.create_topic(TOPIC))
        asyncio.run(booked(cluster.layout.namesrv))
        cluster.stop(["broker-0"])
        rows = read(spark, store, topic=TOPIC)
        assert {body for _, body, kind in rows if kind == "none"} == of_kind("plain")
        assert {body for _, body, kind in rows if kind == "commit"} == of_kind("committed")
        assert len(rows) == 2 * EACH
        # our broker, like Java's, keeps uncommitted messages in its own topics
        assert read(spark, store, topic=TOPIC, transactions="all") == rows
        everything = read(spark, store, includeSystemTopics="true", transactions="all")
        halves = {body for topic, body, _ in everything if topic == "RMQ_SYS_TRANS_HALF_TOPIC"}
        assert halves == of_kind("committed") | of_kind("back") | of_kind("open")
        cluster.start(["broker-0"])
        asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
        asyncio.run(committed_when_asked(cluster.layout.namesrv))
        cluster.stop(["broker-0"])
        rows = read(spark, store, topic=TOPIC)
        assert len(rows) == 3 * EACH
        assert {body for _, body, _ in rows} == of_kind("plain") | of_kind("committed") | of_kind("open")


def test_prepared_and_rolled_back_records_are_rows_only_if_all_are_requested(
    spark: Any, tmp_path: Path
) -> None:
    made = StoreFolder(tmp_path, segment_bytes=16384)
    for number in range(200):
        made.add(topic=TOPIC, body=b"%d" % number, sys_flag=number % 4 << 2)
    made.write()
    kinds = Counter(kind for _, _, kind in read(spark, tmp_path))
    assert kinds == {"none": 50, "commit": 50}
    kinds = Counter(kind for _, _, kind in read(spark, tmp_path, transactions="all"))
    assert kinds == {"none": 50, "prepared": 50, "commit": 50, "rollback": 50}
    with pytest.raises(Exception, match=r"committed, all"):
        read(spark, tmp_path, transactions="some")
