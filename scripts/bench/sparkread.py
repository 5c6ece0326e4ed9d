"""Spark's reading of a committed log, compared with its reading of the same rows as Parquet, on `local[2]` with shipped
settings.

    python -m scripts.bench.sparkread [--bytes 1g] [--body 1024 --body 100] [--runs 3] [--store DIR]

For each body size a store is written (scripts.bench.replaylog). Spark's own writer also writes the rows of its default columns
as snappy Parquet. Then the jobs take turns, each after a run that does not count, with a warm page cache:

    full rows        every row of the default columns to Spark's noop sink; for comparison the Parquet files, all columns, and
                     the way to the JVM alone: a source that decodes one chunk of each split and hands it over again and again
    statistics       rows and bytes of each topic and queue, added up by mqreplay scan in the workers; for comparison the
                     Parquet files, all columns and only those needed, and the data source with Spark's own groupBy
    export           mqreplay export --engine spark to Parquet; for comparison Spark's own writer fed by the data source

Sizes are bytes of the log, whatever the sink holds. Memory is the peak of a Python worker (VmHWM), less that of a worker that
only passes Arrow batches on."""

from __future__ import annotations

import io
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from scripts.bench.measured import machine
from scripts.bench.options import options
from sparkreplay.engine.engine import SparkEngine, start_spark
from sparkreplay.read.options import size
from sparkreplay.read.reader import read_stretch
from sparkreplay.records.walk import CHUNK_BYTES, Stretch
from sparkreplay.source.datasource import RocketMQDataSource, RocketMQReader, register, spare_the_collector

STATISTICS = ("topic", "queue_id", "store_size")


@dataclass
class Timing:
    """Seconds of each counted run of one job over the same log."""

    name: str
    work: Callable[[], None]
    seconds: list[float]

    def once(self) -> float:
        began = time.perf_counter()
        self.work()
        return time.perf_counter() - began

    def shown(self, log_bytes: int, rows: int) -> str:
        low, middle, high = min(self.seconds), statistics.median(self.seconds), max(self.seconds)
        return (
            f"  {self.name:46} {low:6.2f} {middle:6.2f} {high:6.2f} s   "
            f"{log_bytes / middle / 1e6:7,.0f} MB/s   {rows / middle / 1e6:5.2f} M rows/s"
        )


def in_turn(timings: list[Timing], runs: int) -> None:
    """Run the jobs in turn (A B A B ...). The first round is not counted."""
    for number in range(runs + 1):
        for timing in timings:
            seconds = timing.once()
            if number:
                timing.seconds.append(seconds)


def report(timings: list[Timing], log_bytes: int, rows: int, first_reach: float) -> bool:
    """Print the first median as a multiple of each other median. Returns whether the first ratio reaches `first_reach`."""
    for timing in timings:
        print(timing.shown(log_bytes, rows))
    ours = statistics.median(timings[0].seconds)
    for number, other in enumerate(timings[1:]):
        wanted = f" (reach {first_reach})" if number == 0 else ""
        print(f"    {statistics.median(other.seconds) / ours:.2f} x {other.name}{wanted}", flush=True)
    return statistics.median(timings[1].seconds) / ours >= first_reach


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def grouped(frame: DataFrame) -> None:
    frame.groupBy("topic", "queue_id").agg(f.count("*"), f.sum("store_size")).collect()


def emptied(folder: Path) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    return str(folder)


def mqreplay(*command: str) -> None:
    """Run a command as a user does, but in this process and its Spark session, which the command must not end."""
    from sparkreplay.__main__ import cli

    with redirect_stdout(io.StringIO()):
        cli.main(args=[*command, "--engine", "spark", "--quiet"], standalone_mode=False)


def worker_memory_mib() -> list[float]:
    """The highest resident memory so far of each Python worker of this process's Spark. Other workers may run at the same
    time."""
    found = subprocess.run(
        ["pgrep", "-f", "pyspark.daemon|pyspark/daemon"], capture_output=True, text=True, check=False
    ).stdout.split()
    peaks = []
    for pid in map(int, found):
        if os.getpid() not in ancestors(pid):
            continue
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        peaks += [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")]
    return peaks


def ancestors(pid: int) -> Iterator[int]:
    """The process's parent, the parent's parent, and so on. Empty for a process that is gone."""
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return
        pid = int(stat.rpartition(")")[2].split()[1])
        yield pid


def memory_above(base_mib: float) -> str:
    return f"  memory of a worker so far: {max(worker_memory_mib()) - base_mib:.0f} MiB above {base_mib:.0f} (reach 150)"


def handed_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


class HandingReader(RocketMQReader):
    """Returns as much data as a read of its stretches, but reads and decodes almost nothing."""

    def batches(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        spare_the_collector()
        first = next(read_stretch(self.read_plan, stretch))
        for _ in range(0, stretch.end - stretch.start, CHUNK_BYTES):
            yield first


class HandingSource(RocketMQDataSource):
    """The fastest possible source in Python."""

    reader_class = HandingReader

    @classmethod
    def name(cls) -> str:
        return "handing"


def measure(spark: SparkSession, store: str, folder: Path, runs: int, base_mib: float) -> bool:
    def source(columns: str = "default", **options: str) -> DataFrame:
        reader = spark.read.format("rocketmq").option("path", store).option("columns", columns)
        return reader.options(**options).load()

    def handing(columns: str) -> DataFrame:
        return spark.read.format("handing").option("path", store).option("columns", columns).load()

    rows = source("topic").count()
    log_bytes = sum(path.stat().st_size for path in (Path(store) / "commitlog").iterdir())
    print(f"{rows:,} rows, {log_bytes:,} bytes of log")
    parquet = folder / "parquet"
    columns = ",".join([*source().columns, "store_size"])
    source(columns).write.option("compression", "snappy").parquet(emptied(parquet))
    scanned = spark.read.parquet(str(parquet))

    print("full rows, least, median and most seconds")
    timings = [
        Timing("data source", lambda: noop(source(columns)), []),
        Timing("Spark's Parquet scan", lambda: noop(scanned), []),
        Timing("the way to the JVM alone", lambda: noop(handing(columns)), []),
    ]
    in_turn(timings, runs)
    reached = [report(timings, log_bytes, rows, 0.8 if log_bytes / rows > 800 else 0.5)]
    print(memory_above(base_mib))

    print("statistics")
    timings = [
        Timing("mqreplay scan --engine spark", lambda: mqreplay("scan", store), []),
        Timing("Spark's Parquet scan, all columns", lambda: noop(scanned), []),
        Timing("Spark's Parquet scan, pruned", lambda: grouped(scanned), []),
        Timing("data source, groupBy", lambda: grouped(source(",".join(STATISTICS))), []),
    ]
    in_turn(timings, runs)
    reached.append(report(timings, log_bytes, rows, 1.5))

    print("export")
    timings = [
        Timing(
            "mqreplay export --engine spark",
            lambda: mqreplay("export", store, "--to", emptied(folder / "export"), "--columns", "default"),
            [],
        ),
        Timing("Spark's Parquet writer", lambda: source().write.parquet(emptied(folder / "written")), []),
    ]
    in_turn(timings, runs)
    reached.append(report(timings, log_bytes, rows, 2.0))
    print(memory_above(base_mib))
    return all(reached)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--bytes", default="1g")
    parser.add_argument("--body", type=int, action="append")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    print(machine())
    SparkEngine.close = lambda engine: None  # type: ignore[assignment, method-assign]
    reached = []
    for body in given.body or [1024, 100]:
        spark = start_spark("local[2]", "bench")  # a new session for each job, so that peaks are not shared
        register(spark)
        spark.dataSource.register(HandingSource)
        spark.range(1 << 20).mapInArrow(handed_through, "id long").count()
        base_mib = max(worker_memory_mib())
        try:
            with tempfile.TemporaryDirectory(prefix="autoswitch-mq-bench-") as folder:
                store = str(Path(folder) / "store")
                writer = [sys.executable, "-m", "scripts.bench.replaylog", store]
                log_bytes = str(size("--bytes", given.bytes))
                subprocess.run([*writer, "--bytes", log_bytes, "--body", str(body)], check=True)
                reached.append(measure(spark, store, Path(folder), given.runs, base_mib))
        finally:
            spark.stop()
    if not all(reached):
        raise SystemExit("a ratio misses its target")


if __name__ == "__main__":
    main()
