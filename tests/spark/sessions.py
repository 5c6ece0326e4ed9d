"""Spark sessions, shared or with their own settings, and our part of Spark's error messages."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkreplay import register
from sparkreplay.engine.engine import PATIENCE

NOT_CONNECTED = "Python worker failed to connect back"
ROOT = Path(__file__).parents[2]


@contextmanager
def session(master: str, **settings: str) -> Iterator[Any]:
    """A session with both sources, closed at the end. In the names of settings `__` means a dot."""
    from pyspark.sql import SparkSession

    from tests.spark.faultysource import FaultySource

    warehouse = Path(tempfile.mkdtemp(prefix="warehouse-"))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    fixed = {
        "spark__ui__enabled": "false",
        "spark__driver__bindAddress": "127.0.0.1",
        "spark__driver__host": "127.0.0.1",
        "spark__sql__session__timeZone": "UTC",
        "spark__sql__shuffle__partitions": "2",
        "spark__log__level": "OFF",
        # the generated Java of a query is compiled by two compilers and runs for a few thousand rows only
        "spark__sql__codegen__wholeStage": "false",
        "spark__sql__codegen__factoryMode": "NO_CODEGEN",
        "spark__ui__showConsoleProgress": "false",
        "spark__executorEnv__PYTHONPATH": str(ROOT),
        "spark__sql__warehouse__dir": str(warehouse),
    }
    builder = SparkSession.builder.master(master).appName("tests")
    for name, value in {**PATIENCE, **fixed, **settings}.items():
        builder = builder.config(name.replace("__", "."), value)
    spark = builder.getOrCreate()
    try:
        register(spark)
        spark.dataSource.register(FaultySource)
        yield spark
    finally:
        spark.stop()
        shutil.rmtree(warehouse)


def again_where_python_was_slow(call: Callable[..., Any], times: int = 5) -> Callable[..., Any]:
    """The same call, repeated if the planning Python did not connect within ten seconds. Spark fixes that
    timeout (PythonWorkerFactory.createSimpleWorker), and a start takes longer on a loaded machine."""

    def called(*arguments: Any) -> Any:
        for _ in range(times - 1):
            try:
                return call(*arguments)
            except Exception as error:
                if NOT_CONNECTED not in str(error):
                    raise
        return call(*arguments)

    return called


class SharedSession:
    """Starts the shared session at its first use and again after a stop. A task may fail once, as on a
    cluster."""

    def __init__(self) -> None:
        self.opened = ExitStack()
        self.spark: Any = None

    def started(self) -> Any:
        if self.spark is None:
            self.spark = self.opened.enter_context(session("local[2,2]"))
        return self.spark

    def stop(self) -> None:
        self.opened.close()
        self.spark = None


def failure(rows: Any) -> str:
    """The error of Spark when the rows of a frame or an RDD are collected."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        rows.collect()
    return str(caught.value)
