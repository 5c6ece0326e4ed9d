"""Tables of Spark's catalog over stores: created by SQL and through the catalog, read, described, and never
written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from sparkreplay.engine.engine import missing_for_spark
from sparkreplay.read.tableoptions import METADATA
from tests.unit.sparkreplay.storefolder import StoreFolder

pytestmark = [
    pytest.mark.skipif(
        missing_for_spark() is not None, reason=f"Spark cannot run here: {missing_for_spark()}"
    ),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = StoreFolder(tmp_path_factory.mktemp("store"), segment_bytes=16384)
    for number in range(60):
        made.add(topic=("orders", "payments", "payments")[number % 3])
    return made.write()


@pytest.fixture
def tables(spark: Any) -> Iterator[Any]:
    yield spark
    spark.catalog.dropTempView("streamed")
    for row in spark.sql("SHOW TABLES").collect():
        spark.sql(f"DROP TABLE {row.tableName}")


def refusal(spark: Any, statement: str) -> str:
    with pytest.raises(PySparkException) as caught:
        spark.sql(statement).collect()
    return str(caught.value)


def count(spark: Any, table: str) -> int:
    return int(spark.sql(f"SELECT count(*) FROM {table}").collect()[0][0])


def test_a_table_has_the_options_and_location_of_its_statement(tables: Any, path: str) -> None:
    tables.sql(f"CREATE TABLE o USING rocketmq OPTIONS (path '{path}', Topic 'orders', columns 'meta')")
    assert count(tables, "o") == 20 and "body" not in tables.table("o").columns
    tables.sql(f"CREATE TABLE l USING RocketMQ LOCATION '{path}' COMMENT 'all' TBLPROPERTIES ('a.b' = 'c')")
    assert count(tables, "l") == 60
    described = {row.col_name: row.data_type for row in tables.sql("DESCRIBE TABLE l").collect()}
    assert described["queue_offset"] == "bigint" and described["body"] == "binary"


def test_the_catalog_creates_tables_over_one_and_several_stores(tables: Any, path: str) -> None:
    created = tables.catalog.createTable("c", path=path, source="rocketmq", topic="payments")
    assert created.count() == 40 == count(tables, "c")
    tables.catalog.createTable("s", source="rocketmq", paths=json.dumps([path]))
    assert count(tables, "s") == 60


def test_a_table_without_a_path_gets_it_from_the_query(tables: Any, path: str) -> None:
    tables.sql("CREATE TABLE w USING rocketmq OPTIONS (topic 'orders')")
    assert "path: is missing" in refusal(tables, "SELECT count(*) FROM w")
    assert count(tables, f"w WITH ('path' = '{path}')") == 20
    assert tables.read.option("path", path).table("w").count() == 20


def test_a_table_with_a_list_of_columns_says_how_it_gets_its_options(tables: Any, path: str) -> None:
    tables.sql(f"CREATE TABLE n (topic STRING, queue_id INT) USING rocketmq OPTIONS (path '{path}')")
    assert "create it without the list" in refusal(tables, "SELECT count(*) FROM n")
    assert count(tables, f"n WITH ('path' = '{path}')") == 60


def test_a_stream_reads_a_table(tables: Any, path: str) -> None:
    tables.sql(f"CREATE TABLE t USING rocketmq OPTIONS (path '{path}', topic 'orders')")
    rows = tables.readStream.table("t").writeStream.format("memory").queryName("streamed")
    rows.trigger(availableNow=True).start().awaitTermination()
    assert tables.table("streamed").count() == 20


def test_options_that_a_table_does_not_apply_are_refused(tables: Any, path: str) -> None:
    begin = f"CREATE TABLE r USING rocketmq OPTIONS (path '{path}'"
    assert "option topick: is unknown; did you mean topic?" in refusal(tables, f"{begin}, topick 'orders')")
    error = refusal(tables, f"{begin}) TBLPROPERTIES (topic 'orders')")
    assert "option topic: is a table property" in error and "OPTIONS (...)" in error
    assert "queues: 'x' is" in refusal(tables, f"{begin}, queues 'x')")


def test_the_schema_of_a_table_reads_no_other_store(tables: Any, path: str, tmp_path: Path) -> None:
    tables.sql(f"CREATE TABLE x USING rocketmq OPTIONS (path '{path}', topic 'orders')")
    schema = tables.table("x").schema
    assert schema.fields[0].metadata[METADATA]["topic"] == "orders"
    other = StoreFolder(tmp_path)
    other.add()
    reader = tables.read.format("rocketmq").schema(schema).option("path", other.write())
    with pytest.raises(PySparkException, match="schema is that of a table whose path is"):
        reader.load().collect()


@pytest.mark.parametrize(
    "statement",
    ["INSERT INTO v SELECT * FROM v", "CREATE TABLE y USING rocketmq OPTIONS (path '/x') AS SELECT 1 AS one"],
)
def test_writing_is_refused_by_name(tables: Any, path: str, statement: str) -> None:
    tables.sql(f"CREATE TABLE v USING rocketmq OPTIONS (path '{path}')")
    assert "format rocketmq only reads stores" in refusal(tables, statement)


def test_a_stream_is_not_written_to_a_store(tables: Any, path: str, tmp_path: Path) -> None:
    rows = tables.readStream.format("rocketmq").load(path).writeStream.format("rocketmq")
    with pytest.raises(PySparkException, match="format rocketmq only reads stores"):
        writer = rows.option("path", path).option("checkpointLocation", str(tmp_path))
        writer.trigger(availableNow=True).start().awaitTermination()
