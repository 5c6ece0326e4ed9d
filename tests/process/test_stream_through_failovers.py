"""A stream moves from replica to replica while masters are killed; its rows are checked like a consumer's
messages.

No Spark runs here: the test calls the stream as Spark does, and replaces its process before nearly every
batch."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from localcluster.cluster import Cluster
from localcluster.drill import DrillKind, DrillReport, run_drills
from localcluster.history import Found, MessagePlace
from localcluster.layout import BROKER_SET
from localcluster.load import body_hash
from mqclient.client import Client
from mqclient.route import MessageQueue
from sparkreplay.errors import ReplicaBehind
from tests.unit.sparkreplay.streamscene import Query

TOPIC = "streamed"
FAILOVERS = 4
SEGMENT_BYTES = 1 << 17


def found_in(query: Query) -> list[Found]:
    found = [
        Found(
            row["keys"],
            body_hash(row["body"]),
            MessagePlace(str(MessageQueue(TOPIC, BROKER_SET, row["queue_id"])), row["queue_offset"]),
        )
        for row in query.rows
    ]
    return sorted(found, key=lambda message: message.place)


def test_a_stream_over_alternating_replicas_has_each_acknowledged_message_once(tmp_path: Path) -> None:
    with Cluster.create(tmp_path / "cluster", segment_bytes=SEGMENT_BYTES) as cluster:
        cluster.start()
        asyncio.run(cluster.wait_whole())
        stores = [cluster.layout.properties(name)["storePathRootDir"] for name in cluster.layout.broker_names]
        columns = "keys,body,queue_id,queue_offset"
        options = {"topic": TOPIC, "columns": columns, "failOnMissingTopic": "false"}  # the drill creates it
        query = Query(path=stores[0], maxBytesPerTrigger="100k", **options)
        reports: list[DrillReport] = []
        sent = threading.Event()
        waited_for: list[int] = []

        async def by_stream(client: Client, topic: str) -> list[Found]:
            """The rows of the stream up to the confirm offset of the last master."""
            sent.set()
            following.join()
            state = await cluster.wait_whole()
            assert state.master_address is not None
            master = cluster.layout.name_of(state.master_address)
            assert master is not None
            store = cluster.layout.properties(master)["storePathRootDir"]
            query.restart(path=store, address=state.master_address, **options)
            query.run()
            return found_in(query)

        async def drills() -> None:
            reports.append(
                await run_drills(
                    cluster,
                    DrillKind.KILL,
                    FAILOVERS,
                    seed=5,
                    topic=TOPIC,
                    say=print,
                    settle_ms=300,
                    read=by_stream,
                )
            )

        def follow() -> None:
            turn = 0
            while not sent.wait(0.03):
                turn += 1
                query.restart(path=stores[turn % 3], maxBytesPerTrigger="100k", **options)
                try:
                    query.trigger()
                    query.plan_batch()  # as if the driver were killed
                except ReplicaBehind as error:
                    waited_for.append(error.bound)

        following = threading.Thread(target=follow, name="stream")
        following.start()
        try:
            asyncio.run(drills())
        finally:
            sent.set()
            following.join()
        [report] = reports
        assert report.verdict is not None and report.verdict.faults == [], report.verdict
        assert report.passed and len(report.drills) == FAILOVERS, report.failure
        assert query.committed > FAILOVERS
        assert len(list((Path(stores[0]) / "commitlog").iterdir())) > 1, "the log did not roll"
        print(
            f"{len(query.rows)} rows in {query.committed} batches; waited for a replica {len(waited_for)} times"
        )
