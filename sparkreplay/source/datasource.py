"""`spark.read.format("rocketmq")`, and `spark.readStream`: the committed records of stores, as Arrow batches of their segments.

    register(spark)
    frame = spark.read.format("rocketmq").option("path", "/data/broker-a").option("topic", "orders").load()

A batch read resolves the bound once, when it is planned; a stream resolves it at each trigger. The options are documented in
sparkreplay.read.knownoptions."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparkreplay.errors import OptionError, WriteRefused
from sparkreplay.read.knownoptions import nearest
from sparkreplay.read.options import ReadOptions, read_options
from sparkreplay.read.pushed import comparisons
from sparkreplay.read.reader import ReadPlan, plan_read, pruned, read_stretch
from sparkreplay.read.tableoptions import METADATA, SOURCE, is_table, lowered, table_options
from sparkreplay.records.schema import BY_NAME, spark_schema
from sparkreplay.records.walk import Stretch
from sparkreplay.source.streamsource import RocketMQStreamReader
from sparkreplay.source.usererrors import UserErrors
from sparkreplay.stream.admission import Admission
from sparkreplay.stream.request import admission_of, refuse_for_batch

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
}
"""Spark's types, as sparkreplay.records.schema names them."""


@dataclass
class StretchPartition(InputPartition):
    """One stretch of one segment."""

    stretch: Stretch


class RocketMQReader(DataSourceReader):
    """A read that is planned on the driver, and pickled to workers with the frozen plan."""

    def __init__(self, options: ReadOptions) -> None:
        self.read_plan: ReadPlan = plan_read(options)

    def partitions(self) -> Sequence[InputPartition]:
        return [StretchPartition(stretch) for stretch in self.read_plan.stretches]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, StretchPartition):  # Spark passes None if there are no partitions
            return iter(())
        return self.batches(partition.stretch)

    def batches(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        spare_the_collector()
        with UserErrors():
            yield from read_stretch(self.read_plan, stretch)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the list of stretches, because each task has its own stretch."""
        return {**self.__dict__, "read_plan": replace(self.read_plan, stretches=())}


class PushingReader(RocketMQReader):
    """A reader that uses the filters that Spark offers to skip work. Spark evaluates all filters again."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        self.read_plan = pruned(self.read_plan, comparisons(filters))
        return filters


class RocketMQDataSource(DataSource):
    """The data source `rocketmq`."""

    reader_class = RocketMQReader

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> str | StructType:
        """The schema. For a new table the schema keeps the table's options, and no path is needed, because the query may name
        it. Raises OptionError."""
        with UserErrors():
            if not is_table(self.options):
                return spark_schema(read_options(dict(self.options)).columns)
            options = table_options(self.options)
            columns = read_options({"path": "given with the query", **options}).columns
            return table_schema(columns, options)

    def reader(self, schema: StructType) -> RocketMQReader:
        with UserErrors():
            given = self.given_with(schema)
            refuse_for_batch(given)
            return self.reader_class(options_for(schema, given))

    def streamReader(self, schema: StructType) -> RocketMQStreamReader:
        def asked() -> tuple[ReadOptions, Admission]:
            given = self.given_with(schema)
            options = options_for(schema, given)
            return options, admission_of(options, given)

        return RocketMQStreamReader(asked)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with UserErrors():
            raise WriteRefused()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        with UserErrors():
            raise WriteRefused()

    def given_with(self, schema: StructType) -> dict[str, str]:
        """The options of the query, added to those of the table that it reads; the query's options win. Raises OptionError if
        both name a path and the paths differ, because the table's schema may not fit the other path."""
        given, kept = lowered(self.options), kept_options(schema)
        if "path" in given and given["path"] != kept.get("path", given["path"]):
            raise OptionError(
                "path",
                f"is {given['path']}, but the schema is that of a table whose path is {kept['path']}; name no path, or create "
                "another table",
            )
        return {**kept, **given}


class PushingDataSource(RocketMQDataSource):
    """RocketMQDataSource for a session that has filter push-down switched on. In other sessions Spark rejects a reader that
    accepts filters. A data source cannot see its session, so there is a class for each case."""

    reader_class = PushingReader


def options_for(schema: StructType, given: dict[str, str]) -> ReadOptions:
    """The request of a read. Raises OptionError, also for a schema that contradicts `columns`, and for a table whose options
    Spark did not keep."""
    columns = columns_of(schema)
    if not given:
        raise OptionError(
            "path",
            "is missing. Of a table with a list of columns Spark keeps no option for the source: create it without the list "
            "(option columns chooses), or name path in the query, SELECT ... FROM t WITH ('path' = '...')",
        )
    options = read_options(given)
    if "columns" in given and columns != options.columns:
        raise OptionError("columns", "and .schema(...) name different columns; give one of them")
    return replace(options, columns=columns)


def table_schema(columns: Sequence[str], options: dict[str, str]) -> StructType:
    """The columns of a table. The metadata of the first column keeps the options, because Spark passes only a table's schema
    to the reader."""
    kept: list[dict[str, Any]] = [{METADATA: options}, *({} for _ in columns[1:])]
    return StructType(
        [
            StructField(name, TYPES[BY_NAME[name].spark], metadata=metadata)
            for name, metadata in zip(columns, kept, strict=True)
        ]
    )


def kept_options(schema: StructType) -> dict[str, str]:
    """The options that `table_schema` kept; empty if the schema is not a table's."""
    for field in schema.fields:
        if METADATA in field.metadata:
            return dict(field.metadata[METADATA])
    return {}


def spare_the_collector() -> None:
    """Exclude the objects that exist at a worker's first read from garbage collection, because they live as long as the worker.
    Spark's workers collect garbage after every task and scan all imported objects, which takes 30 to 90 ms, half as long as a
    task of this source."""
    if gc.get_freeze_count() == 0:
        gc.freeze()


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns of a user's schema. Raises OptionError if they differ from the source's columns in name, type or
    nullability."""
    for field in schema.fields:
        known = BY_NAME.get(field.name)
        if known is None:
            raise OptionError("schema", f"no column {field.name!r}; {nearest(field.name, BY_NAME)}")
        if field.dataType != TYPES[known.spark]:
            raise OptionError(
                "schema",
                f"column {field.name} is {known.spark}, not {field.dataType.simpleString()}; cast it later",
            )
        if not field.nullable:
            raise OptionError("schema", f"column {field.name} is nullable; leave NOT NULL out")
    names = tuple(schema.fieldNames())
    if not names:
        raise OptionError("schema", "names no column")
    for name in names:
        if names.count(name) > 1:
            raise OptionError("schema", f"names column {name} twice")
    return names


def register(spark: SparkSession) -> None:
    """Make `format("rocketmq")` known to a session.

    The source uses filter push-down if the session has it switched on at this moment
    (spark.sql.python.filterPushdown.enabled)."""
    pushing = spark.conf.get(PUSHDOWN, "false") == "true"
    spark.dataSource.register(PushingDataSource if pushing else RocketMQDataSource)
