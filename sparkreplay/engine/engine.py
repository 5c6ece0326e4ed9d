"""Engines that process stretches: this process, processes of this machine, or Spark's workers. All run the same function.

Invariant: a stretch is known by its number. The result of each number is passed once to `done`, on the caller's thread, in any
order. The first ReplayError of a worker, or an interrupt, ends the run, and every worker is ended with it."""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from tempfile import TemporaryDirectory
from threading import Thread
from types import MappingProxyType
from typing import Any, Protocol

from sparkreplay.engine.package import write_package
from sparkreplay.engine.processes import run_in_processes
from sparkreplay.errors import EngineFailed, ReplayError

Work = Callable[[int], Any]
Done = Callable[[int, Any], None]
POLL_S = 0.1
REPORT_FIRST_S, REPORT_AGAIN_S = 15.0, 60.0
"""Spark itself waits equally long before it logs that a job gets no resources."""
PATIENCE = {"spark.python.authenticate.socketTimeout": "300s", "spark.network.timeout": "600s"}
"""Spark's defaults (15 s, 120 s) would end jobs on a loaded machine, where Python or executors are only slow."""
logger = logging.getLogger("sparkreplay")
START_S = 1.0
"""Time until a new process works, because each process imports the reader."""


class Engine(Protocol):
    """Runs `work(number)` for each of `numbers`."""

    def run(self, work: Work, numbers: Sequence[int], done: Done) -> None:
        """Raises the work's ReplayError, and EngineFailed when the workers themselves fail."""

    def close(self) -> None: ...


class LocalEngine:
    """Works in `workers` processes, without Java. By default the work begins in this process, and moves to one process per core
    as soon as that saves more time than starting the processes takes. The saving is estimated from the numbers done so far."""

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
        """Nothing to close."""


class IdleWatch:
    """Decides when to report to the user that a job waits for its tasks: after REPORT_FIRST_S without a running task, and
    every REPORT_AGAIN_S from then on. Pure."""

    def __init__(self, now_s: float) -> None:
        self.idle_since_s = now_s
        self.report_at_s = now_s + REPORT_FIRST_S

    def is_due(self, running: int, now_s: float) -> bool:
        """`running` is the number of tasks that run now."""
        if running:
            self.idle_since_s = now_s
            self.report_at_s = now_s + REPORT_FIRST_S
        elif now_s >= self.report_at_s:
            self.report_at_s = now_s + REPORT_AGAIN_S
            return True
        return False


def silence_py4j() -> None:
    """Silence py4j's log, of which some lines go to the root logger. No error is lost: py4j also raises the errors that it
    logs, except for those of a session that is being closed, which do not matter."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return os.path.basename(os.path.dirname(record.pathname)) != "py4j"


class SparkEngine:
    """Runs one Spark task per number. Each task's result reaches the driver when the task ends. While the engine waits,
    `report` gets messages for the user."""

    def __init__(
        self,
        master: str,
        conf: Mapping[str, str] = MappingProxyType({}),
        report: Callable[[str], None] = logger.warning,
    ) -> None:
        silence_py4j()
        self.master = master
        self.report = report
        self.served = TemporaryDirectory(prefix="mqreplay-")  # executors fetch it while the session lives
        self.spark = start_spark(master, conf=conf)
        if not in_one_process(master):
            archive = write_package(os.path.join(self.served.name, "sparkreplay.zip"))
            self.spark.sparkContext.addPyFile(str(archive))

    def run(self, work: Work, numbers: Sequence[int], done: Done) -> None:
        if not numbers:
            return
        from sparkreplay.engine.sparkresults import TaskAttempt, new_results

        context = self.spark.sparkContext
        results = new_results(context)
        attempt = TaskAttempt(pickle.dumps(work), results)
        failure: list[Exception] = []

        def job() -> None:
            try:
                context.parallelize(numbers, len(numbers)).foreach(attempt)
            except Exception as error:
                failure.append(error)

        runner = Thread(target=job, name="spark-job", daemon=True)
        runner.start()
        passed: set[int] = set()
        watch = IdleWatch(time.monotonic())
        while True:
            ended = not runner.is_alive()
            if not ended and watch.is_due(running_tasks(context), time.monotonic()):
                self.report(self.waiting(time.monotonic() - watch.idle_since_s))
            for number, result in sorted(results.value.items()):
                if number in passed:
                    continue
                passed.add(number)
                if isinstance(result, ReplayError):
                    context.cancelAllJobs()
                    raise result
                done(number, result)
            if ended:
                break
            runner.join(POLL_S)
        if failure:
            raise EngineFailed(f"the Spark job failed: {reason_of(failure[0])}")

    def waiting(self, idle_s: float) -> str:
        """The report that a job has no running task. Spark itself only logs this, and its log is not shown."""
        conf = self.spark.sparkContext.getConf()
        memory, executor_cores = (
            conf.get(f"spark.executor.{name}", default)
            for name, default in (("memory", "1g"), ("cores", "all"))
        )
        return (
            f"Spark has run no task for {idle_s:.0f} s and is waited for: the workers of {self.master} are too small for an "
            f"executor of {memory} memory and {executor_cores} cores, or busy, or there are none. See the master's page; ask "
            "for less, for example --conf spark.executor.memory=512m --conf spark.executor.cores=1, or interrupt this"
        )

    def close(self) -> None:
        self.spark.stop()
        self.served.cleanup()


def running_tasks(context: Any) -> int:
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


def in_one_process(master: str) -> bool:
    """Whether the master is `local` or like `local[2]`, so that the workers run on this machine with this installation."""
    return master == "local" or master.startswith("local[")


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def reason_of(error: Exception) -> str:
    """The line of a Java or Python traceback that names the error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "Exception" in line]
    return (errors or lines or [type(error).__name__])[-1][:500]


def missing_for_spark() -> str | None:
    """Why Spark cannot run here, with the remedy; None if it can."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "PySpark is not installed; pip install 'autoswitch-mq[spark]'"
    home = os.environ.get("JAVA_HOME")
    if not (home and os.access(os.path.join(home, "bin", "java"), os.X_OK)) and shutil.which("java") is None:
        return "no Java 17 or newer is found; install one (Debian: apt-get install openjdk-17-jre-headless)"
    return None


def start_spark(master: str, name: str = "mqreplay", conf: Mapping[str, str] = MappingProxyType({})) -> Any:
    """A session with the settings here, which the user's `conf` overrides. Raises ReplayError if Spark cannot run here.

    Workers on this machine run this interpreter. Workers of a cluster run the interpreter that `spark.pyspark.python` or
    PYSPARK_PYTHON names, or the path of this interpreter if neither is set."""
    missing = missing_for_spark()
    if missing:
        raise ReplayError(f"Spark cannot run: {missing}; or use --engine local")
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = worker_python(master, conf, os.environ)
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
    for setting, value in PATIENCE.items():
        builder = builder.config(setting, value)
    if in_one_process(master):
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config(
            "spark.driver.host", "127.0.0.1"
        )
    for setting, value in conf.items():
        builder = builder.config(setting, value)
    return builder.getOrCreate()


def worker_python(master: str, conf: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """The interpreter of Spark's workers: this interpreter if they run on this machine, else the user's choice."""
    if in_one_process(master):
        return sys.executable
    return conf.get("spark.pyspark.python") or environment.get("PYSPARK_PYTHON") or sys.executable
