from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqruntime import log
from mqruntime.logfile import LogFile
from mqruntime.serve import raise_open_files_limit

DEMO = Path(__file__).with_name("demoserver.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(DEMO.parents[3])}


@pytest.fixture
def logs() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers:
        if isinstance(handler, LogFile):
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_log_file_is_renamed_before_it_outgrows_its_size_and_the_oldest_goes(
    tmp_path: Path, logs: None, capsys: pytest.CaptureFixture[str]
) -> None:
    log.configure(file=LogFile(tmp_path / "mqbroker.log", bytes_max=1000, kept=2))
    for number in range(60):
        logging.getLogger("broker").info("event %d", number)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["mqbroker.log", "mqbroker.log.1", "mqbroker.log.2"]
    assert all(file.stat().st_size <= 1000 for file in files)
    lines = "".join(file.read_text() for file in reversed(files)).splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == [str(n) for n in range(60 - len(lines), 60)]
    assert capsys.readouterr().err == ""


def test_a_fatal_error_is_written_to_standard_error_too(
    tmp_path: Path, logs: None, capsys: pytest.CaptureFixture[str]
) -> None:
    log.configure(file=LogFile(tmp_path / "log"))
    logging.getLogger("x").error("a failure")
    logging.getLogger("x").critical("fatal: the disk fails")
    printed = capsys.readouterr().err
    assert printed.endswith("CRITICAL x fatal: the disk fails\n") and printed.count("\n") == 1
    assert (tmp_path / "log").read_text().count("\n") == 2


def test_a_full_log_disk_loses_lines_says_so_and_stops_nothing(
    tmp_path: Path, logs: None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"
    path.symlink_to("/dev/full")  # every write to it fails with ENOSPC
    log.configure(file=LogFile(path, bytes_max=1000, kept=1), as_json=True)
    for number in range(3):
        logging.getLogger("x").info("lost %d", number)
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and "No space left on device" in printed

    path.unlink()  # there is room again
    logging.getLogger("x").info("kept")
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["message"] == "kept"
    assert (second["level"], second["message"], second["lines"]) == (
        "WARNING",
        "log lines could not be written",
        3,
    )


def test_a_log_file_that_cannot_be_renamed_loses_lines_and_stops_nothing(
    tmp_path: Path, logs: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log.configure(file=LogFile(tmp_path / "log", bytes_max=100, kept=1))

    def refused(source: str, target: str) -> None:
        raise PermissionError(13, "Permission denied", source)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", refused)
        for number in range(5):
            logging.getLogger("x").info("a line of more than thirty bytes %d", number)
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and "Permission denied" in printed
    logging.getLogger("x").info("renamed at last")
    assert "renamed at last" in (tmp_path / "log.1").read_text() + (tmp_path / "log").read_text()


def test_a_server_logs_to_the_file_it_is_given_or_says_why_not(tmp_path: Path) -> None:
    def refused(*options: str) -> str:
        command = [sys.executable, str(DEMO), "mode=typed", *options]
        done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
        assert "Traceback" not in done.stderr
        return f"{done.returncode} {done.stderr}"

    error = refused("--log-file", f"{tmp_path}/demo.log")
    assert error.startswith("1 ") and "fatal: port 1 is taken" in error
    assert "fatal: port 1 is taken" in (tmp_path / "demo.log").read_text()
    assert refused("--log-file", f"{tmp_path}/absent/demo.log").endswith(
        f"cannot write the log file {tmp_path}/absent/demo.log: No such file or directory\n"
    )
    assert "'0' is not a whole number of 1 or more" in refused("--log-file-size", "0")


def test_a_server_may_open_as_many_files_as_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        raise_open_files_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
