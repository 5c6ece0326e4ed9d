"""`spark.read.format("rocketmq")`: the committed records of one store, as Arrow batches of its segments.

    register(spark)
    frame = spark.read.format("rocketmq").option("path", "/data/broker-a").option("topic", "orders").load()

The bound is resolved once, when the read is planned. Options: sparkreplay.options.KNOWN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparkreplay.errors import OptionError
from sparkreplay.options import ReadOptions, read_options
from sparkreplay.reader import ReadPlan, plan_read, read_stretch
from sparkreplay.schema import BY_NAME, spark_schema
from sparkreplay.walk import Stretch


@dataclass
class StretchPartition(InputPartition):
    """One stretch of one segment."""

    stretch: Stretch


class RocketMQReader(DataSourceReader):
    """Planned on the driver; pickled to workers with the frozen plan."""

    def __init__(self, options: ReadOptions) -> None:
        self.read_plan: ReadPlan = plan_read(options)

    def partitions(self) -> Sequence[InputPartition]:
        return [StretchPartition(stretch) for stretch in self.read_plan.stretches]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, StretchPartition):  # Spark's way of saying that there are none
            return iter(())
        return read_stretch(self.read_plan, partition.stretch)


class RocketMQDataSource(DataSource):
    """The data source `rocketmq`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    @cached_property
    def read_options(self) -> ReadOptions:
        return read_options(dict(self.options))

    def schema(self) -> str:
        return spark_schema(self.read_options.columns)

    def reader(self, schema: StructType) -> RocketMQReader:
        names = tuple(schema.fieldNames())
        for name in names:
            if name not in BY_NAME:
                raise OptionError("schema", f"no column {name!r}; some of {', '.join(BY_NAME)}")
        return RocketMQReader(replace(self.read_options, columns=names))


def register(spark: SparkSession) -> None:
    """Makes `format("rocketmq")` known to a session."""
    spark.dataSource.register(RocketMQDataSource)
