"""mqreplay with Spark's workers: the same answers and the same files as without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparkreplay.engine.engine import SparkEngine, missing_for_spark, start_spark
from sparkreplay.errors import EngineFailed, LogCorrupted
from sparkreplay.export import job as exporting
from tests.unit.sparkreplay.commandline import mqreplay, two_days

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(
        missing_for_spark() is not None, reason=f"Spark cannot run here: {missing_for_spark()}"
    ),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("no_session"),
]


def files_of(target: Path) -> dict[str, bytes]:
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}


def test_spark_exports_the_same_files_as_one_process(tmp_path: Path) -> None:
    path = two_days(tmp_path / "store").write()
    for target, *engine in (("one", "--workers", "1"), ("other", "--engine", "spark")):
        done = mqreplay("export", path, "--to", str(tmp_path / target), "--split", "8k", "--json", *engine)
        assert done.code == 0, done.err
    assert files_of(tmp_path / "one") == files_of(tmp_path / "other")


def test_spark_scans_the_same_records_as_one_process(tmp_path: Path) -> None:
    path = two_days(tmp_path).write()
    alone = mqreplay("scan", path, "--split", "8k", "--workers", "1", "--json")
    spark = mqreplay("scan", path, "--split", "8k", "--engine", "spark", "--json")
    assert spark.code == 0 and spark.json == alone.json


def test_task_attempts_that_die_or_run_twice_leave_each_part_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like retries and speculation: some tasks die half way, and all run again next to finished ones."""
    path = two_days(tmp_path / "store").write()
    whole, target = tmp_path / "whole", tmp_path / "parquet"
    command = ["export", path, "--split", "8k", "--quiet"]
    assert mqreplay(*command, "--to", str(whole), "--workers", "1").code == 0
    (tmp_path / "deaths").mkdir()
    work = partial(dies_once_and_runs_twice, str(tmp_path / "deaths"))
    monkeypatch.setattr("sparkreplay.commands.export.export_stretch", work)
    done = mqreplay(*command, "--to", str(target), "--engine", "spark", "--master", "local[2,3]")
    assert done.code == 0, done.err
    assert len(list((tmp_path / "deaths").iterdir())) > 3
    assert files_of(target) == files_of(whole)


def dies_once_and_runs_twice(deaths: str, job: exporting.ExportJob, number: int) -> Any:
    mark = Path(deaths, str(number))
    if number % 2 and not mark.exists():
        mark.touch()
        os._exit(9)
    exporting.export_stretch(job, number)
    return exporting.export_stretch(job, number)


def test_errors_of_a_task_reach_the_user() -> None:
    engine = SparkEngine("local[2]")
    try:
        with pytest.raises(LogCorrupted, match="at physical offset 7: bad") as caught:
            engine.run(finds_damage, range(4), lambda number, result: None)
        assert caught.value.offset == 7
        with pytest.raises(EngineFailed, match="no such thing"):
            engine.run(raises, range(2), lambda number, result: None)
        found: dict[int, int] = {}
        engine.run(squared, range(5), found.__setitem__)
        assert found == {0: 0, 1: 1, 2: 4, 3: 9, 4: 16}
    finally:
        engine.close()


class TooSmallError(Exception):
    """Ends the wait of a test."""


def test_a_cluster_whose_workers_are_too_small_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def report(text: str) -> None:
        raise TooSmallError(text)

    monkeypatch.setattr("sparkreplay.engine.engine.REPORT_FIRST_S", 0.5)
    engine = SparkEngine("local-cluster[1,1,1024]", {"spark.executor.cores": "2"}, report)
    try:
        with pytest.raises(TooSmallError, match="Spark has run no task .* 1g memory and 2 cores, .* --conf"):
            engine.run(squared, range(2), lambda number, result: None)
    finally:
        # the JVM of this session would keep it for later sessions
        engine.spark.sparkContext._jvm.System.clearProperty("spark.executor.cores")
        engine.close()


def test_settings_of_spark_are_applied_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    path = two_days(tmp_path).write()
    spark = ("scan", path, "--engine", "spark")
    done = mqreplay(
        *spark, "--quiet", "--json", "--conf", "spark.app.name=a=b", "--conf", "spark.task.cpus=1"
    )
    assert done.code == 0, done.err
    for arguments, why in (
        (("scan", path, "--conf", "spark.x=1"), "is for --engine spark"),
        ((*spark, "--conf", "spark.x"), "is not KEY=VALUE"),
        ((*spark, "--conf", "executor.memory=1g"), "begins with spark."),
        ((*spark, "--conf", "spark.master=yarn"), "--master"),
        ((*spark, "--conf", "spark.x=1", "--conf", "spark.x=2"), "spark.x is given twice"),
    ):
        done = mqreplay(*arguments)
        assert done.code == 2 and why in done.err, done


def test_a_session_waits_longer_and_the_users_settings_win() -> None:
    spark = start_spark("local[1]", conf={"spark.network.timeout": "900s"})
    try:
        conf = spark.sparkContext.getConf()
        assert conf.get("spark.python.authenticate.socketTimeout") == "300s"
        assert conf.get("spark.network.timeout") == "900s"
    finally:
        spark.stop()


def squared(number: int) -> int:
    return number * number


def finds_damage(number: int) -> None:
    raise LogCorrupted("/log", 7, "bad")


def raises(number: int) -> None:
    raise KeyError("no such thing")


def test_an_interrupted_driver_exits_with_130_and_another_engine_continues(tmp_path: Path) -> None:
    path = two_days(tmp_path / "store", 8000).write()
    whole, target = tmp_path / "whole", tmp_path / "parquet"
    command = ["export", path, "--split", "16k", "--quiet"]
    assert mqreplay(*command, "--to", str(whole), "--workers", "1").code == 0
    spark = ["--to", str(target), "--engine", "spark", "--master", "local[2]"]
    process = subprocess.Popen(
        [sys.executable, "-m", "sparkreplay", *command, *spark], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    records = target / "_mqreplay" / "stretches"
    while process.poll() is None and not (records.exists() and len(list(records.iterdir())) > 1):
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert "interrupted" in err and "Traceback" not in err
    assert [entry.name for entry in target.iterdir()] == ["_mqreplay"]
    assert mqreplay(*command, "--to", str(target), "--workers", "1").code == 0
    assert files_of(target) == files_of(whole)


def test_executors_of_a_cluster_are_sent_the_reader(tmp_path: Path) -> None:
    path = two_days(tmp_path).write()
    alone = mqreplay("scan", path, "--workers", "1", "--json")
    cluster = mqreplay("scan", path, "--engine", "spark", "--master", "local-cluster[1,1,1024]", "--json")
    assert cluster.code == 0, cluster.err
    assert cluster.json == alone.json
