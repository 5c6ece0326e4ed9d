"""In a real Spark session: the store of a Java broker in Raft mode; workers skip the headers of its
entries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkreplay.engine.engine import missing_for_spark
from tests.unit.sparkreplay.javastores import java_store
from tests.unit.sparkreplay.storerows import rows_of

pytestmark = [
    pytest.mark.skipif(
        missing_for_spark() is not None, reason=f"Spark cannot run here: {missing_for_spark()}"
    ),
    pytest.mark.filterwarnings("ignore"),
]


def test_spark_gives_the_rows_of_a_raft_mode_brokers_store(spark: Any, tmp_path: Path) -> None:
    root = java_store("raft-mixed", tmp_path / "broker-a")
    wanted = [
        (row["physical_offset"], row["queue_offset"], row["epoch"], row["body"]) for row in rows_of(str(root))
    ]
    assert len(wanted) == 170
    for options in ({}, {"index": "consumequeue", "topic": "Orders"}):
        frame = (
            spark.read.format("rocketmq").options(splitBytes="4096", crc="true", **options).load(str(root))
        )
        rows = frame.select("physical_offset", "queue_offset", "epoch", "body").collect()
        assert sorted((*row[:3], bytes(row.body)) for row in rows) == wanted
    with pytest.raises(Exception, match="latest has no meaning for the store of a Raft-mode broker"):
        spark.read.format("rocketmq").options(endingOffsets="latest", allowUncommitted="true").load(
            str(root)
        ).count()
