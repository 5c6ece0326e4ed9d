"""Where work runs: in this process, or in worker processes when they are faster."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkreplay.engine.engine import (
    REPORT_AGAIN_S,
    REPORT_FIRST_S,
    IdleWatch,
    LocalEngine,
    silence_py4j,
    worker_python,
)
from sparkreplay.errors import EngineFailed, LogCorrupted


def places(engine: LocalEngine, work: Callable[[int], int], count: int) -> dict[int, int]:
    found: dict[int, int] = {}
    engine.run(work, range(count), found.__setitem__)
    return found


def process(number: int) -> int:
    return os.getpid()


def test_work_is_spread_over_the_requested_processes() -> None:
    found = places(LocalEngine(2), process, 12)
    assert sorted(found) == list(range(12))
    assert os.getpid() not in found.values() and 1 <= len(set(found.values())) <= 2


def test_short_work_stays_in_this_process_and_long_work_moves_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparkreplay.engine.engine.cores", lambda: 2)
    assert set(places(LocalEngine(), process, 5).values()) == {os.getpid()}
    seconds = iter([0.0, 0.0, 3.0])
    found = places(LocalEngine(now_s=lambda: next(seconds)), process, 5)
    assert found.pop(0) == os.getpid() and os.getpid() not in found.values() and len(found) == 4


def finds_damage(number: int) -> int:
    if number == 3:
        raise LogCorrupted("/log", 7, "bad")
    return number


def test_an_error_of_a_worker_process_keeps_its_attributes() -> None:
    with pytest.raises(LogCorrupted, match="at physical offset 7: bad") as caught:
        places(LocalEngine(2), finds_damage, 5)
    assert (caught.value.path, caught.value.offset) == ("/log", 7)


def dies(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_killed_worker_process_is_reported() -> None:
    with pytest.raises(EngineFailed, match="died"):
        places(LocalEngine(2), dies, 4)


def has_a_bug(number: int) -> int:
    return [][number]


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(RuntimeError, match="IndexError"):
        places(LocalEngine(2), has_a_bug, 4)


def test_a_job_without_a_running_task_is_reported_again_and_again() -> None:
    watch = IdleWatch(100.0)
    assert not watch.is_due(0, 100.0 + REPORT_FIRST_S - 0.1)
    assert watch.is_due(0, 100.0 + REPORT_FIRST_S) and watch.idle_since_s == 100.0
    assert not watch.is_due(0, 100.0 + REPORT_FIRST_S + REPORT_AGAIN_S - 0.1)
    assert watch.is_due(0, 100.0 + REPORT_FIRST_S + REPORT_AGAIN_S)
    assert not watch.is_due(1, 1000.0) and not watch.is_due(0, 1000.0 + REPORT_FIRST_S - 0.1)
    assert watch.is_due(0, 1000.0 + REPORT_FIRST_S) and watch.idle_since_s == 1000.0


@pytest.mark.parametrize(
    ("master", "conf", "environment", "expected"),
    [
        ("local[2]", {}, {"PYSPARK_PYTHON": "/other"}, sys.executable),
        ("spark://host:7077", {}, {"PYSPARK_PYTHON": "/theirs"}, "/theirs"),
        ("yarn", {"spark.pyspark.python": "/conf"}, {"PYSPARK_PYTHON": "/theirs"}, "/conf"),
        ("yarn", {}, {}, sys.executable),
    ],
)
def test_workers_of_a_cluster_run_the_python_that_the_user_names(
    master: str, conf: dict[str, str], environment: dict[str, str], expected: str
) -> None:
    assert worker_python(master, conf, environment) == expected


def test_an_error_that_py4j_logs_by_the_root_logger_is_not_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "filters", [*root.filters])
    silence_py4j()
    for folder in ("py4j", "other"):
        file = tmp_path / folder / "gateway.py"
        file.parent.mkdir()
        text = f"import logging\nlogging.exception('of {folder}')\n"
        exec(compile(text, str(file), "exec"), {})
    assert [record.message for record in caplog.records] == ["of other"]
