"""Streams in a real Spark session: Spark's calls to the source, and its checkpoints."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.peers.waits import WAIT_S
from sparkreplay.engine.engine import missing_for_spark
from tests.unit.sparkreplay.storefolder import StoreFolder

pytestmark = [
    pytest.mark.skipif(
        missing_for_spark() is not None, reason=f"Spark cannot run here: {missing_for_spark()}"
    ),
    pytest.mark.filterwarnings("ignore"),
]


ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> StoreFolder:
    made = StoreFolder(tmp_path / "store", segment_bytes=8192)
    add(made, 100)
    return made


def add(folder: StoreFolder, count: int) -> None:
    for number in range(len(folder.ends), len(folder.ends) + count):
        folder.add(queue_id=number % 4, properties=f"UNIQ_KEY\x01{number}\x02")


def stream(spark: Any, path: str, **options: str) -> Any:
    return spark.readStream.format("rocketmq").options(path=path, columns="msg_id", **options).load()


def numbers(spark: Any, table: str) -> list[int]:
    return sorted(int(row.msg_id) for row in spark.table(table).collect())


def test_a_query_follows_a_log_that_grows_rolls_and_loses_its_old_files(
    spark: Any, folder: StoreFolder
) -> None:
    rows = stream(spark, folder.write(confirm=folder.ends[-1] - 1))
    query = rows.writeStream.format("memory").queryName("followed").start()
    try:
        query.processAllAvailable()
        assert numbers(spark, "followed") == [*range(99)]
        for _ in range(2):
            add(folder, 50)
            folder.delete_first(1)
            folder.write()
            query.processAllAvailable()
        assert numbers(spark, "followed") == [*range(200)]
        assert json.loads(query.lastProgress.sources[0].latestOffset) == {"broker-a": folder.ends[-1]}
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("limit", "batches"),
    [
        ({"maxBytesPerTrigger": "8k"}, 2),
        ({"minOffsetsPerTrigger": "1000"}, 1),
    ],
)
def test_available_now_reads_all_messages_in_limited_batches_and_ends(
    spark: Any, folder: StoreFolder, limit: dict[str, str], batches: int
) -> None:
    table = f"now_{next(iter(limit))}"
    rows = stream(spark, folder.write(), **limit)
    query = rows.writeStream.format("memory").queryName(table).trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_S)
    assert numbers(spark, table) == [*range(100)]
    assert sum(progress.numInputRows > 0 for progress in query.recentProgress) == batches


def test_a_truncated_log_ends_the_query_with_an_error_that_says_what_to_do(
    spark: Any, folder: StoreFolder
) -> None:
    from pyspark.errors import StreamingQueryException

    rows = stream(spark, folder.write())
    query = rows.writeStream.format("memory").queryName("truncated").start()
    query.processAllAvailable()
    folder.write(epochs=((1, 0), (2, folder.ends[69])))
    with pytest.raises(
        StreamingQueryException, match=r"LogTruncated: broker set broker-a.*new checkpointLocation"
    ):
        query.awaitTermination(WAIT_S)
    assert numbers(spark, "truncated") == [*range(100)]


def test_a_checkpoint_of_another_log_of_the_same_name_ends_the_query(
    spark: Any, folder: StoreFolder, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    recreated = StoreFolder(tmp_path / "recreated", folder.segment_bytes)
    recreated.add(stored_ms=1_800_000_000_000)

    def run(path: str) -> Any:
        writer = stream(spark, path).writeStream.format("noop").trigger(availableNow=True)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    assert run(folder.write()).awaitTermination(WAIT_S)
    with pytest.raises(StreamingQueryException, match=r"ForeignLog: .*recreated.*new checkpointLocation"):
        run(recreated.write()).awaitTermination(WAIT_S)


def test_options_of_streams_are_refused_for_a_batch_and_an_end_for_a_stream(
    spark: Any, folder: StoreFolder
) -> None:
    from pyspark.errors import StreamingQueryException

    reader = spark.read.format("rocketmq").option("path", folder.write())
    with pytest.raises(Exception, match="maxBytesPerTrigger: is for streams"):
        reader.option("maxBytesPerTrigger", "1m").load().count()
    for options, reason in (
        ({"endingOffsets": "4096"}, "OptionError: option endingOffsets: a stream has no end"),
        ({"maxTriggerDelay": "5"}, "OptionError: option maxTriggerDelay: '5' is no time"),
    ):
        rows = stream(spark, str(folder.root), **options)
        query = rows.writeStream.format("memory").queryName("refused").start()
        with pytest.raises(StreamingQueryException) as failed:
            query.awaitTermination(WAIT_S)
        assert reason in str(failed.value) and "UnboundLocalError" not in str(failed.value)


@pytest.mark.long
def test_every_message_is_in_the_files_once_after_kills_of_the_job(
    spark: Any, folder: StoreFolder, tmp_path: Path
) -> None:
    output, checkpoint, fifo = tmp_path / "output", tmp_path / "checkpoint", tmp_path / "fifo"
    os.mkfifo(fifo)
    add(folder, 200)
    job = [folder.write(confirm=folder.ends[-1] - 1), str(output), str(checkpoint)]
    with killed(*job, str(fifo), "150") as process:  # in the second batch, after some of its tasks
        reached(process, fifo)
    assert batches(checkpoint, "offsets") == ["0", "1"] and batches(checkpoint, "commits") == ["0"]
    folder.delete_first(1)  # read by the batch before
    add(folder, 50)
    folder.write(confirm=folder.ends[-1] - 1)
    with killed(*job) as process:
        assert process.stdout is not None and process.stdout.readline() == "idle\n"
    assert batches(checkpoint, "offsets") == batches(checkpoint, "commits")
    replica = StoreFolder(tmp_path / "replica", folder.segment_bytes)
    replica.log[:], replica.ends[:] = folder.log, folder.ends
    add(replica, 50)
    rows = stream(spark, replica.write(epochs=((1, 0), (2, folder.ends[-1])))).select("msg_id")
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(output))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_S)
    found = spark.read.parquet(str(output)).collect()
    assert sorted(int(row.msg_id) for row in found) == [*range(400)]


def batches(checkpoint: Path, log: str) -> list[str]:
    return sorted(file.name for file in (checkpoint / log).iterdir() if file.name.isdigit())


@contextmanager
def killed(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Runs streamingjob.py; kills driver and JVM at the end of the block."""
    command = [sys.executable, "-m", "tests.spark.streamingjob", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def reached(process: subprocess.Popen[str], fifo: Path) -> None:
    """Waits until the job's task has reached its message."""
    assert process.stdout is not None
    pipe = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        readable, _, _ = select.select([pipe, process.stdout.fileno()], [], [], 150)
        assert readable == [pipe], "the job ended before it reached the message"
    finally:
        os.close(pipe)
