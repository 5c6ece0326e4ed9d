"""Reads the committed part of a RocketMQ commit log, with Spark or without it.

    from sparkreplay import register; register(spark)

makes `spark.read.format("rocketmq")` known to a session. PySpark is imported only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Makes the data source `rocketmq` known to a session; see sparkreplay.datasource."""
    from sparkreplay import datasource

    datasource.register(spark)
