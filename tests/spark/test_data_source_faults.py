"""With tasks that die or run twice, the written rows are the same, each once (K1, K3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkreplay.engine.engine import missing_for_spark
from tests.spark.writtenrows import ROWS, SEGMENT_BYTES, export, written
from tests.unit.sparkreplay.storefolder import StoreFolder

pytestmark = [
    pytest.mark.skipif(
        missing_for_spark() is not None, reason=f"Spark cannot run here: {missing_for_spark()}"
    ),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def folder(tmp_path: Path) -> StoreFolder:
    made = StoreFolder(tmp_path / "store", SEGMENT_BYTES)
    for number in range(ROWS):
        made.add(queue_id=number % 2, body=b"%d" % number * 20)
    made.write()
    return made


def test_tasks_whose_worker_is_killed_once_write_the_same_rows(
    spark: Any, folder: StoreFolder, tmp_path: Path
) -> None:
    reader = spark.read.option("path", str(folder.root))
    plain = export(reader.format("rocketmq").load(), tmp_path / "plain")
    faults = {"fault": "killed", "folder": str(tmp_path)}
    killed = export(reader.format("faulty").options(**faults).load(), tmp_path / "killed")
    attempts = list(tmp_path.glob("begun-*"))
    assert (
        len(attempts)
        == len(list(killed.glob("part-*.parquet")))
        == len(list(plain.glob("part-*.parquet")))
        > 2
    )
    assert len(written(killed)) == ROWS and written(killed) == written(plain)


def test_a_log_truncated_while_it_is_read_fails_the_job_and_leaves_no_output(
    spark: Any, folder: StoreFolder, tmp_path: Path
) -> None:
    rows = spark.read.format("rocketmq").load(str(folder.root)).rdd
    assert rows.getNumPartitions() > 2
    folder.write_epochs(((1, 0), (2, 5000)))
    planned_before = rows.map(lambda row: (row.physical_offset, bytes(row.body)))
    output = tmp_path / "output"
    with pytest.raises(Exception, match="EpochChanged"):
        planned_before.saveAsTextFile(str(output))
    assert not (output / "_SUCCESS").exists() and not list(output.glob("part-*"))
