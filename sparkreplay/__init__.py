"""Reads the committed part of a RocketMQ commit log, with Spark or without it.

    import sparkreplay
    table = sparkreplay.open("/data/broker-a", topic="orders").to_arrow()

    sparkreplay.register(spark)

makes `spark.read.format("rocketmq")` known to a session. PySpark is imported only then, and pyarrow only when a store is
opened."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkreplay.source.openedlog import OpenedLog


def open(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], **options: Any) -> OpenedLog:
    """The committed rows of one or more stores, for readers of Arrow such as DuckDB, Polars and pandas; see
    sparkreplay.source.openedlog."""
    from sparkreplay.source.openedlog import open_log

    return open_log(path, **options)


def register(spark: SparkSession) -> None:
    """Make the data source `rocketmq` known to a session; see sparkreplay.source.datasource."""
    from sparkreplay.source import datasource

    datasource.register(spark)
