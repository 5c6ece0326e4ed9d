"""A task that is slow is run a second time on another host: its rows are written once (K3).

Spark speculates on another host only, so this is a standalone cluster of two, 127.0.0.1 and 127.0.0.2."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkreplay.engine.engine import missing_for_spark
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all
from tests.spark.sessions import ROOT, SharedSession, session
from tests.spark.writtenrows import ROWS, SEGMENT_BYTES, export, written
from tests.unit.sparkreplay.storefolder import StoreFolder

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        missing_for_spark() is not None, reason=f"Spark cannot run here: {missing_for_spark()}"
    ),
    pytest.mark.filterwarnings("ignore"),
]
SPECULATION = {
    "spark__speculation": "true",
    "spark__speculation__interval": "50ms",
    "spark__speculation__quantile": "0.1",
    "spark__speculation__multiplier": "1.01",
    "spark__speculation__minTaskRuntime": "10ms",
    "spark__executor__memory": "512m",
    "spark__executor__cores": "1",
    "spark__cores__max": "2",
}


@contextmanager
def daemon(folder: Path, name: str, class_name: str, *arguments: str) -> Iterator[None]:
    """A process of Spark; its log is in `folder`."""
    import pyspark

    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{class_name}", *arguments]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "128m",
    }
    with open(folder / f"{name}.log", "w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=folder, start_new_session=True
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def spark(shared_session: SharedSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    shared_session.stop()
    folder, port = tmp_path_factory.mktemp("cluster"), str(free_port())
    master = f"spark://127.0.0.1:{port}"
    address = ("--port", port, "--webui-port", "0")
    worker = ("--webui-port", "0", "-c", "1", "-m", "512m", master)
    with (
        daemon(folder, "master", "master.Master", "--host", "127.0.0.1", *address),
        daemon(folder, "one", "worker.Worker", "--host", "127.0.0.1", "-d", str(folder / "one"), *worker),
        daemon(folder, "two", "worker.Worker", "--host", "127.0.0.2", "-d", str(folder / "two"), *worker),
        session(master, **SPECULATION) as spark,
    ):
        yield spark


def test_a_task_that_runs_twice_writes_its_rows_once(spark: Any, tmp_path: Path) -> None:
    made = StoreFolder(tmp_path / "store", SEGMENT_BYTES)
    for number in range(ROWS):
        made.add(queue_id=number % 2, body=b"%d" % number * 20)
    made.write()
    os.mkfifo(tmp_path / "gate")
    faults = {"fault": "stuck", "folder": str(tmp_path)}
    rows = spark.read.format("faulty").options(**faults).load(str(made.root))
    output = export(rows, tmp_path / "output")
    read = plan_read(read_options({"path": str(made.root), "columns": "physical_offset,body"}))
    alone = [tuple(row.values()) for batch in read_all(read) for row in batch.to_pylist()]
    assert len(alone) == ROWS and written(output) == alone
    assert len(list(output.glob("part-*.parquet"))) == len(list(tmp_path.glob("begun-*"))) > 2
