"""The data source in a real Spark session gives the same rows as the reader without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkreplay.engine.engine import missing_for_spark
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all
from tests.unit.sparkreplay.storefolder import StoreFolder

pytestmark = [
    pytest.mark.skipif(
        missing_for_spark() is not None, reason=f"Spark cannot run here: {missing_for_spark()}"
    ),
    pytest.mark.filterwarnings("ignore"),
]


def store(root: Path) -> str:
    made = StoreFolder(root, segment_bytes=65536)
    for number in range(1000):
        made.add(
            topic=("orders", "payments")[number % 2],
            queue_id=number % 4,
            body=str(number).encode() * 9,
            properties=f"UNIQ_KEY\x01K{number}\x02A\x01b\x02",
        )
    return made.write(confirm=made.ends[989])


def test_spark_reads_the_same_rows_as_the_reader(spark: Any, tmp_path: Path) -> None:
    path = store(tmp_path)
    frame = spark.read.format("rocketmq").options(path=path, columns="full", splitBytes="32k").load()
    rows = sorted(frame.collect(), key=lambda row: row.physical_offset)
    alone = pa.Table.from_batches(
        list(read_all(plan_read(read_options({"path": path, "columns": "full"}))))
    ).to_pylist()
    assert len(rows) == len(alone) == 990
    for row, expected in zip(rows, alone, strict=True):
        assert bytes(row.body) == expected["body"] and row.msg_id == expected["msg_id"]
        assert row.properties == dict(expected["properties"])
        assert (row.topic, row.queue_id, row.queue_offset, row.epoch) == tuple(
            expected[name] for name in ("topic", "queue_id", "queue_offset", "epoch")
        )


def test_columns_and_topics_are_chosen_in_the_source(spark: Any, tmp_path: Path) -> None:
    path = store(tmp_path)
    reader = spark.read.format("rocketmq").option("path", path).option("topic", "orders")
    assert reader.option("columns", "topic,queue_id").load().groupBy("topic").count().collect() == [
        ("orders", 495)
    ]


def test_an_empty_committed_part_is_an_empty_frame(spark: Any, tmp_path: Path) -> None:
    made = StoreFolder(tmp_path)
    made.add()
    frame = spark.read.format("rocketmq").option("path", made.write(confirm=0)).load()
    assert frame.count() == 0
