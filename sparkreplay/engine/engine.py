"""Where stretches are worked on: in this process, in processes of it, or by Spark's workers. The work is the same function.

Invariant: each number's result is given once to `done`, on the caller's thread, in any order; the first ReplayError of a
worker ends the run, and so does an interrupt, with no worker left behind."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Protocol

from sparkreplay.engine.package import write_package
from sparkreplay.engine.processes import run_in_processes
from sparkreplay.errors import EngineFailed, ReplayError

Work = Callable[[int], Any]
Done = Callable[[int, Any], None]
POLL_S = 0.1
START_S = 1.0
"""What it takes until processes work: each imports the reader."""


class Engine(Protocol):
    """Runs `work(number)` for each of `numbers`."""

    def run(self, work: Work, numbers: Sequence[int], done: Done) -> None:
        """Raises what the work raises as ReplayError, and EngineFailed when the workers themselves fail."""

    def close(self) -> None: ...


class LocalEngine:
    """`workers` processes. Where none are asked for: this one, and one a core as soon as that gains more than their start
    costs, judged by how long the numbers took so far. No Java needed."""

    def __init__(self, workers: int | None = None, now_s: Callable[[], float] = time.monotonic) -> None:
        self.now_s = now_s
        self.workers = workers or cores()
        self.gain_s_min = START_S if workers is None else 0.0

    def run(self, work: Work, numbers: Sequence[int], done: Done) -> None:
        began = self.now_s()
        for count, number in enumerate(numbers):
            left = len(numbers) - count
            workers = min(self.workers, left)
            each_s = (self.now_s() - began) / max(count, 1)
            if workers > 1 and each_s * left * (1 - 1 / workers) >= self.gain_s_min:
                run_in_processes(work, numbers[count:], done, workers)
                return
            done(number, work(number))

    def close(self) -> None:
        """Nothing is kept between runs."""


class SparkEngine:
    """A Spark task a number. What each task found reaches the driver as the task ends."""

    def __init__(self, master: str) -> None:
        self.served = TemporaryDirectory(
            prefix="mqreplay-"
        )  # executors fetch from it as long as the session lives
        self.spark = start_spark(master)
        if not in_one_process(master):
            archive = write_package(os.path.join(self.served.name, "sparkreplay.zip"))
            self.spark.sparkContext.addPyFile(str(archive))

    def run(self, work: Work, numbers: Sequence[int], done: Done) -> None:
        if not numbers:
            return
        from sparkreplay.engine.sparkresults import Attempt, new_results

        context = self.spark.sparkContext
        results = new_results(context)
        attempt = Attempt(pickle.dumps(work), results)
        failure: list[Exception] = []

        def job() -> None:
            try:
                context.parallelize(numbers, len(numbers)).foreach(attempt)
            except Exception as error:
                failure.append(error)

        runner = Thread(target=job, name="spark-job", daemon=True)
        runner.start()
        told: set[int] = set()
        while True:
            ended = not runner.is_alive()
            for number, result in sorted(results.value.items()):
                if number in told:
                    continue
                told.add(number)
                if isinstance(result, ReplayError):
                    context.cancelAllJobs()
                    raise result
                done(number, result)
            if ended:
                break
            runner.join(POLL_S)
        if failure:
            raise EngineFailed(f"the Spark job failed: {reason_of(failure[0])}")

    def close(self) -> None:
        self.spark.stop()
        self.served.cleanup()


def in_one_process(master: str) -> bool:
    """`local`, `local[2]`: the workers are this machine's, and see what is installed here."""
    return master == "local" or master.startswith("local[")


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def reason_of(error: Exception) -> str:
    """The line of a Java or Python traceback that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or "Exception" in line]
    return (told or lines or [type(error).__name__])[-1][:500]


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

    builder = (
        SparkSession.builder.master(master)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.log.level", "ERROR")
    )
    if in_one_process(master):
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config(
            "spark.driver.host", "127.0.0.1"
        )
    return builder.getOrCreate()
