"""The data source as users see it through Spark: options, schemas, filters, and error messages."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkreplay import register
from sparkreplay.engine.engine import missing_for_spark
from tests.spark.sessions import ROOT, failure
from tests.unit.sparkreplay.storefolder import StoreFolder

pytestmark = [
    pytest.mark.skipif(
        missing_for_spark() is not None, reason=f"Spark cannot run here: {missing_for_spark()}"
    ),
    pytest.mark.filterwarnings("ignore"),
]
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SEGMENT_BYTES = 16384


def store(root: Path) -> str:
    made = StoreFolder(root, SEGMENT_BYTES)
    for number in range(400):
        made.add(
            topic=("orders", "payments")[number % 2],
            queue_id=number // 2 % 2,
            body=b"%d" % number * 9,
            properties=f"TAGS\x01T{number % 3}\x02",
            stored_ms=1_700_000_000_000 + number,
        )
    return made.write(confirm=made.ends[389], epochs=((1, 0), (3, made.ends[199])))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return store(tmp_path_factory.mktemp("store"))


def frame(spark: Any, path: str, schema: str | None = None, **options: str) -> Any:
    reader = spark.read.format("rocketmq").options(path=path, **options)
    return (reader.schema(schema) if schema else reader).load()


def test_the_documented_lines_make_a_frame(spark: Any, path: str) -> None:
    for document in ("README.md", "docs/spark.md"):
        blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(), re.M | re.S)
        block = next(block for block in blocks if "sparkreplay" in block)
        names: dict[str, Any] = {"spark": spark}
        exec(block.replace("/data/broker-a", path), names)
        assert names["orders"].count() == 195


def test_the_program_of_the_tutorial_counts_by_tag(
    spark: Any, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs/tutorials/first-spark-read.md").read_text()
    program = next(
        text for text in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S) if "pyspark" in text
    )
    exec(program.replace("run/demo/broker-0", path).replace('"clicks"', '"orders"'), {})
    assert re.findall(r"\| *(T\d)\| +(\d+)\|", capsys.readouterr().out) == [
        ("T0", "65"),
        ("T1", "65"),
        ("T2", "65"),
    ]


def test_several_stores_through_load(spark: Any, path: str, tmp_path: Path) -> None:
    other = store(tmp_path)
    (tmp_path / "brokerIdentity").write_text("DefaultCluster#broker-b#1")
    rows = spark.read.format("rocketmq").option("columns", "broker_name").load([path, other])
    assert dict(rows.groupBy("broker_name").count().collect()) == {"broker-a": 390, "broker-b": 390}


def test_offsets_and_times_reach_the_source_with_names_in_any_case(spark: Any, path: str) -> None:
    offsets = json.dumps({"orders": {"0": 90, "1": 95}})
    rows = frame(spark, path, TOPIC="orders", STARTINGOFFSETS=offsets, columns="queue_id,queue_offset")
    assert sorted(rows.collect()) == [(0, at) for at in range(90, 98)] + [(1, at) for at in range(95, 97)]
    assert frame(spark, path, startingTimestamp="1700000000380").count() == 10


# Filters


WHERE = [
    "physical_offset >= 20000 and physical_offset < 40000",
    "topic = 'orders' and queue_id in (1, 7)",
    "epoch = 3 and queue_offset > 60",
    "store_timestamp between timestamp'2023-11-14 22:13:20.1005Z' and timestamp'2023-11-14 22:13:20.300Z'",
    "topic != 'orders' and not queue_id = 1",
    "broker_name = 'broker-b'",
    "tags = 'T1' and (topic = 'orders' or queue_id = 0)",
    "topic is null",
    "topic <=> 'orders' and queue_offset not in (1, 2, null)",
]


@contextmanager
def pushdown(spark: Any) -> Iterator[None]:
    """The session with filter push-down; the setting applies when a source is registered."""
    spark.conf.set(PUSHDOWN, "true")
    register(spark)
    try:
        yield
    finally:
        spark.conf.unset(PUSHDOWN)
        register(spark)


@pytest.mark.parametrize("where", WHERE)
def test_pushed_filters_give_what_filters_on_all_rows_give(spark: Any, path: str, where: str) -> None:
    columns = "topic,queue_id,queue_offset,tags,store_timestamp,physical_offset,epoch,broker_name"
    plain = frame(spark, path, columns=columns).where(where)
    rows, plan = sorted(plain.collect()), condition(plain)
    with pushdown(spark):
        pushed = frame(spark, path, columns=columns).where(where)
        assert sorted(pushed.collect()) == rows
        assert condition(pushed) == plan, "Spark evaluates every filter again"


def condition(filtered: Any) -> list[str]:
    """The filter of the plan, without the numbers of columns; none if Spark knows that no row passes."""
    plan = filtered._jdf.queryExecution().executedPlan().toString()
    return re.findall(r"Filter (.*)", re.sub(r"#\d+L?", "", plan))


def test_pushed_filters_leave_partitions_out_and_drop_rows_in_the_worker(spark: Any, path: str) -> None:
    plain = frame(spark, path).where("physical_offset >= 50000")
    assert rows_scanned(plain) == 390
    with pushdown(spark):
        pushed = frame(spark, path).where("physical_offset >= 50000")
        assert rows_scanned(pushed) == len(pushed.collect()) < 390
        assert pushed.rdd.getNumPartitions() < plain.rdd.getNumPartitions()


def rows_scanned(filtered: Any) -> int:
    filtered.collect()
    scan = filtered._jdf.queryExecution().executedPlan().collectLeaves().head()
    return int(scan.metrics().get("numOutputRows").get().value())


# Schemas


def test_a_users_schema_names_the_decoded_columns(spark: Any, path: str) -> None:
    rows = frame(spark, path, schema="physical_offset bigint, topic string, properties map<string,string>")
    assert rows.columns == ["physical_offset", "topic", "properties"]
    assert rows.orderBy("physical_offset").first() == (0, "orders", {"TAGS": "T0"})


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("topic string, queue_offset int", "column queue_offset is bigint, not int"),
        ("topics string", "no column 'topics'; did you mean topic?"),
        ("topic string not null", "column topic is nullable"),
        ("properties map<string,binary>", "column properties is map<string,string>, not map<string,binary>"),
    ],
)
def test_a_schema_of_another_shape_is_refused_by_name(spark: Any, path: str, schema: str, why: str) -> None:
    assert f"OptionError: option schema: {why}" in failure(frame(spark, path, schema=schema))


def test_a_schema_and_columns_must_agree(spark: Any, path: str) -> None:
    assert "name different columns" in failure(frame(spark, path, schema="topic string", columns="tags"))


# Messages


def test_a_mistyped_option_is_reported_in_a_readable_message(spark: Any, path: str) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException) as caught:
        frame(spark, path, startingOffset="1")
    require_readable(
        str(caught.value), "OptionError: option startingoffset: is unknown; did you mean startingOffsets?"
    )


def require_readable(text: str, message: str) -> None:
    """Checks that the message is at the end of a few lines, once."""
    lines = text.strip().splitlines()
    assert len(lines) <= 10, text
    assert text.count(message) == 1 and any(message in line for line in lines[-2:]), text


def test_an_unreadable_store_is_reported_at_planning(spark: Any, path: str, tmp_path: Path) -> None:
    require_readable(failure(frame(spark, str(tmp_path))), f"StoreUnreadable: {tmp_path}: ")
    text = failure(frame(spark, path, startingOffsets='{"orders": {"0": 9000}}'))
    require_readable(text, "queue orders/0 ends at 98, before offset 9000")


# What happens between planning and reading


def planned(rows: Any) -> Any:
    """The frame's rows, partitions and bound resolved."""
    rdd = rows.rdd
    assert rdd.getNumPartitions() > 1
    return rdd


def test_damage_fails_the_job_with_file_and_offset(spark: Any, tmp_path: Path) -> None:
    path = store(tmp_path)
    segment = tmp_path / "commitlog" / f"{SEGMENT_BYTES:020d}"
    data = bytearray(segment.read_bytes())
    data[4:8] = bytes(4)
    segment.write_bytes(data)
    message = f"LogCorrupted: {segment}: at physical offset {SEGMENT_BYTES}: no record starts here"
    require_readable(failure(frame(spark, path)), message)


def test_a_truncation_between_planning_and_reading_fails_the_job(spark: Any, tmp_path: Path) -> None:
    rows = planned(frame(spark, store(tmp_path)))
    StoreFolder(tmp_path).write_epochs(((1, 0), (4, 1000)))
    assert "EpochChanged" in failure(rows)


def test_a_segment_deleted_after_planning_fails_the_job_or_is_left_out(spark: Any, tmp_path: Path) -> None:
    path = store(tmp_path)
    rows = {flag: planned(frame(spark, path, failOnDataLoss=flag)) for flag in ("true", "false")}
    os.remove(tmp_path / "commitlog" / f"{0:020d}")
    assert "SegmentGone" in failure(rows["true"])
    left = [row.physical_offset for row in rows["false"].collect()]
    assert sorted(left) == sorted(row.physical_offset for row in frame(spark, path).collect())
    assert min(left) == SEGMENT_BYTES


def test_rows_that_are_committed_after_planning_are_not_read(spark: Any, tmp_path: Path) -> None:
    rows = planned(frame(spark, store(tmp_path)))
    end = 4 * SEGMENT_BYTES
    (tmp_path / "checkpoint").write_bytes(bytes(32) + end.to_bytes(8, "big") + bytes(4056))
    assert rows.count() == 390
