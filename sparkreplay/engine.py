"""Where stretches are worked on: in this process, or by Spark's workers. The work is the same function."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from sparkreplay.errors import ReplayError


class Engine(Protocol):
    """Runs `work(number)` for each stretch; results in the order of the stretches."""

    def run(self, work: Callable[[int], Any], count: int) -> Iterator[Any]: ...


class LocalEngine:
    """One stretch after the other, no Java needed."""

    def run(self, work: Callable[[int], Any], count: int) -> Iterator[Any]:
        return map(work, range(count))


class SparkEngine:
    """A Spark task a stretch."""

    def __init__(self, master: str) -> None:
        self.spark = start_spark(master)

    def run(self, work: Callable[[int], Any], count: int) -> Iterator[Any]:
        if count == 0:
            return iter(())
        numbers = self.spark.sparkContext.parallelize(range(count), count)
        return iter(numbers.map(work).collect())


def missing_for_spark() -> str | None:
    """What keeps Spark from running here, with its cure; None when nothing does."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "PySpark is not installed; pip install 'autoswitch-mq[spark]'"
    home = os.environ.get("JAVA_HOME")
    if not (home and os.access(os.path.join(home, "bin", "java"), os.X_OK)) and shutil.which("java") is None:
        return "no Java 17 or newer is found; install one (Debian: apt-get install openjdk-17-jre-headless)"
    return None


def start_spark(master: str, name: str = "mqreplay") -> Any:
    """A session whose workers run this interpreter; raises ReplayError when Spark cannot run here."""
    missing = missing_for_spark()
    if missing:
        raise ReplayError(f"Spark cannot run: {missing}; or use --engine local")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master(master)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
