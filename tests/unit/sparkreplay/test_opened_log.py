"""sparkreplay.open: rows for Arrow readers, without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pytest

import sparkreplay
from sparkreplay.errors import LogCorrupted, OptionError, StoreUnreadable
from sparkreplay.records.schema import PRESETS
from tests.unit.sparkreplay.storefolder import StoreFolder

ROOT = Path(__file__).parents[3]
WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None
import sparkreplay
assert "pyarrow" not in sys.modules
print(sparkreplay.open(sys.argv[1], topic="orders").to_arrow().num_rows)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    made = StoreFolder(tmp_path, segment_bytes=4096)
    for number in range(90):
        made.add(
            topic=("orders", "payments", "payments")[number % 3],
            queue_id=number % 2,
            body=b"%d" % number,
            properties=f"TAGS\x01T{number % 5}\x02UNIQ_KEY\x01K{number}\x02",
        )
    return made.write(confirm=made.ends[79])


def test_a_log_is_a_table_and_a_reader_up_to_its_bound(path: str, tmp_path: Path) -> None:
    log = sparkreplay.open(path)
    assert log.schema.names == list(PRESETS["default"])
    bounds = {"broker-a": log.bound}
    assert log.bounds == bounds
    made = log.to_arrow()
    assert made.schema == log.schema and made.num_rows == 80
    reader = log.to_reader()
    assert isinstance(reader, pa.RecordBatchReader) and reader.read_all() == made
    assert max(made.column("physical_offset").to_pylist()) < log.bound
    assert sparkreplay.open(tmp_path).to_arrow() == made


def test_options_are_taken_as_python_has_them(path: str) -> None:
    rows = sparkreplay.open(
        path,
        topic=["orders"],
        queues={1},
        columns=["queue_offset"],
        startingOffsets={"orders": {"1": 3}},
        crc=True,
    ).to_arrow()
    assert rows.to_pylist() == [{"queue_offset": offset} for offset in range(3, 13)]
    assert (
        sparkreplay.open(path, allowUncommitted=True, endingOffsets="latest", topic=None).to_arrow().num_rows
        == 90
    )


def test_duckdb_reads_a_log_in_one_line(path: str) -> None:
    log = sparkreplay.open(path, topic="payments").to_reader()  # noqa: F841 - DuckDB looks for its name
    found = duckdb.sql(
        "SELECT queue_id, count(*), max(tags), min(msg_id) FROM log GROUP BY ALL ORDER BY 1"
    ).fetchall()
    assert [row[:2] for row in found] == [(0, 26), (1, 27)]
    whole = sparkreplay.open(path, columns="full").to_arrow()
    (total,) = duckdb.sql("SELECT sum(store_size) FROM whole WHERE properties['TAGS'] = 'T1'").fetchall()
    assert total[0] == sum(
        row["store_size"] for row in whole.to_pylist() if dict(row["properties"])["TAGS"] == "T1"
    )


def test_polars_reads_a_log_in_one_line(path: str) -> None:
    frame = polars.from_arrow(sparkreplay.open(path, columns="topic,body,born_timestamp").to_arrow())
    assert isinstance(frame, polars.DataFrame)
    assert dict(frame.group_by("topic").len().iter_rows()) == {"orders": 27, "payments": 53}
    assert polars.DataFrame(sparkreplay.open(path, columns="body")).to_series().to_list()[:2] == [b"0", b"1"]


def test_pandas_reads_a_log(path: str) -> None:
    frame = sparkreplay.open(path, columns="topic,queue_offset").to_arrow().to_pandas()
    assert frame.groupby("topic")["queue_offset"].max().to_dict() == {"orders": 13, "payments": 26}


def test_opening_a_log_needs_no_pyspark(path: str) -> None:
    command = [sys.executable, "-c", WITHOUT_SPARK, path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("27\n", "")


def test_several_broker_sets_have_a_bound_each(path: str, tmp_path: Path) -> None:
    other = StoreFolder(tmp_path / "other")
    other.add()
    other.write()
    (tmp_path / "other" / "brokerIdentity").write_text("DefaultCluster#broker-b#1")
    log = sparkreplay.open([path, tmp_path / "other"])
    assert log.bounds.keys() == {"broker-a", "broker-b"} and log.to_arrow().num_rows == 81
    with pytest.raises(OptionError, match="broker sets broker-a, broker-b; take bounds"):
        _ = log.bound


def test_wrong_options_and_damage_are_reported_by_name(path: str, tmp_path: Path) -> None:
    for options, why in (
        ({"topick": "x"}, "did you mean topic"),
        ({"maxBytesPerTrigger": 5}, "for streams"),
        ({"Path": "/x"}, "twice"),
    ):
        with pytest.raises(OptionError, match=why):
            sparkreplay.open(path, **options)
    with pytest.raises(StoreUnreadable):
        sparkreplay.open(tmp_path / "nowhere")
    segment = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    data[4] ^= 1
    segment.write_bytes(data)
    with pytest.raises(LogCorrupted):
        sparkreplay.open(path).to_arrow()
    reader = sparkreplay.open(path).to_reader()  # noqa: F841 - DuckDB looks for its name
    with pytest.raises(duckdb.Error, match="at physical offset 0"):
        duckdb.sql("SELECT count(*) FROM reader").fetchall()
