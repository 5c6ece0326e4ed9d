"""Ten masters are killed under load while jobs read the stores of all three replicas: the same bound gives
the same output.

The final rows are checked like a consumer's messages: every acknowledged one once and in its place. Messages
of unknown outcome may be present and are counted."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from localcluster.cluster import Cluster
from localcluster.drill import DrillKind, DrillReport, run_drills
from localcluster.history import Found, MessagePlace
from localcluster.layout import BROKER_SET
from localcluster.load import read_back
from mqclient.client import Client
from mqclient.route import MessageQueue
from mqruntime.clock import SystemClock
from sparkreplay.engine.engine import missing_for_spark
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all
from sparkreplay.records.schema import arrow_schema
from sparkreplay.store.bound import checkpoint_bound
from sparkreplay.store.files import LocalFiles
from tests.process.replicas import stores, until_all_hold_everything
from tests.unit.sparkreplay.commandline import mqreplay

TOPIC = "drilled"
FAILOVERS = 10
COLUMNS = "queue_id,queue_offset,keys,body,physical_offset,epoch,store_timestamp"

pytestmark = [
    pytest.mark.skipif(
        missing_for_spark() is not None, reason=f"Spark cannot run here: {missing_for_spark()}"
    ),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.create(tmp_path_factory.mktemp("failovers") / "cluster") as made:
        made.start()
        yield made


def rows_below(bound: int, store: str) -> pa.Table:
    """In the log's order."""
    options = {"path": store, "topic": TOPIC, "endingOffsets": str(bound), "columns": COLUMNS, "crc": "true"}
    read = plan_read(read_options(options))
    return pa.Table.from_batches(read_all(read), schema=arrow_schema(read.columns))


def found_by_spark(spark: Any, store: str, bound: int) -> list[Found]:
    from pyspark.sql import functions as f

    frame = (
        spark.read.format("rocketmq")
        .option("path", store)
        .option("topic", TOPIC)
        .option("endingOffsets", str(bound))
        .option("splitBytes", "1m")
        .load()
    )
    rows = frame.select("keys", "queue_id", "queue_offset", f.sha2("body", 256).alias("hash")).collect()
    found = [
        Found(
            row.keys,
            row.hash,
            MessagePlace(str(MessageQueue(TOPIC, BROKER_SET, row.queue_id)), row.queue_offset),
        )
        for row in rows
    ]
    return sorted(found, key=lambda message: message.place)


def test_all_replicas_give_the_same_output_for_a_bound_through_ten_failovers(
    cluster: Cluster, spark: Any
) -> None:
    reports: list[DrillReport] = []
    outputs: list[list[Found]] = []

    async def by_spark(client: Client, topic: str) -> list[Found]:
        bound = await until_all_hold_everything(cluster)
        outputs.extend(found_by_spark(spark, store, bound) for store in stores(cluster))
        return outputs[0]

    async def drills() -> None:
        reports.append(
            await run_drills(
                cluster,
                DrillKind.KILL,
                FAILOVERS,
                seed=11,
                topic=TOPIC,
                say=print,
                settle_ms=200,
                read=by_spark,
            )
        )

    drilling = threading.Thread(target=lambda: asyncio.run(drills()), name="drills")
    drilling.start()
    compared = 0
    while drilling.is_alive():
        drilling.join(0.2)
        if not all((Path(store) / "checkpoint").exists() for store in stores(cluster)):
            continue  # a broker saves its first one a second after its start
        bound = min(checkpoint_bound(LocalFiles(store)) for store in stores(cluster))
        if bound and not outputs:
            first, *others = map(partial(rows_below, bound), stores(cluster))
            assert all(map(first.equals, others)), f"replicas differ below {bound}"
            compared += 1
    assert compared >= FAILOVERS, f"only {compared} comparisons while masters were killed"
    assert outputs[0] == outputs[1] == outputs[2]
    [report] = reports
    assert report.verdict is not None and report.verdict.faults == [], report.verdict
    assert report.passed and len(report.drills) == FAILOVERS, report.failure
    assert report.verdict.acknowledged + report.verdict.unknown_present == report.verdict.read


def test_spark_workers_resend_a_topic_each_for_its_own_queues(
    cluster: Cluster, no_session: None, tmp_path: Path
) -> None:
    asyncio.run(cluster.wait_whole())
    asyncio.run(cluster.create_topic("again", 4))
    done = mqreplay(
        "resend", stores(cluster)[0], "--topic", TOPIC, "--to", "DefaultCluster/again", "-n", cluster.layout.namesrv,
        "--ledger", str(tmp_path / "ledger"), "--engine", "spark", "--master", "local[2]", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    summary = done.json
    assert summary["acknowledged"] > 0 and summary["maybe_twice"] == 0
    assert sorted(path.name for path in tmp_path.glob("ledger.?-of-?")) == ["ledger.0-of-2", "ledger.1-of-2"]

    async def read(topic: str) -> list[Found]:
        async with Client(cluster.layout.namesrv, clock=SystemClock(), random=random.Random(1)) as client:
            return await read_back(client.consumer("check"), topic)

    def places(messages: list[Found]) -> list[tuple[str, str, int, str]]:
        return sorted(
            (
                message.message_id,
                message.body_hash,
                message.place.offset,
                message.place.queue.rpartition("/")[2],
            )
            for message in messages
        )

    assert places(asyncio.run(read("again"))) == places(asyncio.run(read(TOPIC)))
