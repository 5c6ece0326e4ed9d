"""Reads a store's committed messages of one topic with Spark or, using the same reader, without Spark.

It runs as a separate process, so that its JVM can be ended at any time:

    python -m localcluster.sparkjob STORE TOPIC BOUND PARQUET ENGINE

It writes the rows to the folder PARQUET and prints one JSON object, with a summary of each queue and the key, place and hash
of each row."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkreplay.engine.engine import start_spark
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all


def by_spark(store: str, topic: str, bound: int, parquet: Path) -> dict[str, Any]:
    """Run the job in a local Spark session, which computes the rows' hashes and the summary."""
    from pyspark.sql import functions as f

    from sparkreplay.source.datasource import register

    spark = start_spark("local[2]", "quickstart")
    register(spark)
    frame = (
        spark.read.format("rocketmq")
        .option("path", store)
        .option("topic", topic)
        .option("endingOffsets", str(bound))
        .load()
        .cache()  # read the log once, use it three times
    )
    frame.write.parquet(str(parquet))
    rows = frame.select("keys", "queue_id", "queue_offset", f.sha2("body", 256)).collect()
    summary = (
        frame.groupBy("queue_id")
        .agg(f.count("*"), f.min("queue_offset"), f.max("queue_offset"), f.sum(f.octet_length("body")))
        .orderBy("queue_id")
        .collect()
    )
    spark.stop()
    return {"rows": [list(row) for row in rows], "summary": [list(row) for row in summary]}


def by_reader(store: str, topic: str, bound: int, parquet: Path) -> dict[str, Any]:
    """Run the job without Spark."""
    options = {"path": store, "topic": topic, "endingOffsets": str(bound)}
    read = plan_read(read_options(options))
    batches = list(read_all(read))
    table = pa.Table.from_batches(batches) if batches else None
    parquet.mkdir(parents=True)
    if table is None:
        return {"rows": [], "summary": []}
    pq.write_table(table, parquet / "part-00000.parquet")
    rows = [
        [row["keys"], row["queue_id"], row["queue_offset"], hashlib.sha256(row["body"]).hexdigest()]
        for row in table.select(["keys", "queue_id", "queue_offset", "body"]).to_pylist()
    ]
    sized = table.append_column("size", pc.binary_length(table["body"]))
    grouped = sized.group_by("queue_id").aggregate(
        [("queue_offset", "count"), ("queue_offset", "min"), ("queue_offset", "max"), ("size", "sum")]
    )
    summary = [list(row.values()) for row in grouped.sort_by("queue_id").to_pylist()]
    return {"rows": rows, "summary": summary}


def main() -> None:
    store, topic, bound, parquet, engine = sys.argv[1:]
    job = by_spark if engine == "spark" else by_reader
    json.dump(job(store, topic, int(bound), Path(parquet)), sys.stdout)


if __name__ == "__main__":
    main()
