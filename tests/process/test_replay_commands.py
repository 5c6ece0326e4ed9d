"""mqreplay as a process: interrupted, killed, with a closed pipe."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.longtests import long
from tests.unit.sparkreplay.commandline import two_days

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL, *long([signal.SIGINT])])
def test_a_stopped_export_leaves_nothing_half_visible_and_continues(
    tmp_path: Path, ending: signal.Signals
) -> None:
    path, target = two_days(tmp_path / "store", 20_000).write(), tmp_path / "parquet"
    command = [
        sys.executable,
        "-m",
        "sparkreplay",
        "export",
        path,
        "--to",
        str(target),
        "--split",
        "16k",
        "--workers",
        "2",
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    records = target / "_mqreplay" / "stretches"
    while process.poll() is None and not (records.exists() and len(list(records.iterdir())) > 3):
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
    process.send_signal(ending)
    _, err = process.communicate()
    assert process.returncode == (-ending if ending == signal.SIGKILL else 130), err
    assert "Traceback" not in err
    assert [entry.name for entry in target.iterdir()] == ["_mqreplay"]
    resumed = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(resumed.stdout)["rows"] == 20_000
    assert sorted(pq.read_table(target).column("msg_id").to_pylist()) == sorted(
        f"K{number}" for number in range(20_000)
    )


def test_a_closed_pipe_causes_no_traceback(tmp_path: Path) -> None:
    path = two_days(tmp_path, 200).write()
    command = f"{sys.executable} -m sparkreplay scan {path} --workers 1 | true"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


def test_a_terminal_sees_a_bar_and_stdout_only_the_answer(tmp_path: Path) -> None:
    path = two_days(tmp_path, 2000).write()
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sparkreplay", "stats", path, "--split", "16k", "--workers", "1"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(theirs)
    drawn = b""
    with suppress(OSError):  # EIO: the other end is closed
        while part := os.read(ours, 65536):
            drawn += part
    os.close(ours)
    out, _ = process.communicate()
    assert process.returncode == 0
    assert b"stats" in drawn and b"rows" in drawn
    assert out.startswith("store") and "\x1b" not in out


@pytest.mark.parametrize(
    ("redirected", "code", "words"),
    [
        ("2>&-", 0, "a read gives 400 of them"),
        (">&-", 0, ""),
        (">/dev/full", 1, "mqreplay: No space left on device"),
        ("--json >/dev/full", 1, "mqreplay: No space left on device"),
    ],
)
def test_a_closed_or_full_output_stream_causes_no_traceback(
    tmp_path: Path, redirected: str, code: int, words: str
) -> None:
    path = two_days(tmp_path).write()
    done = subprocess.run(
        ["bash", "-c", f'"{sys.executable}" -m sparkreplay scan "{path}" {redirected}'],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert words in done.stdout + done.stderr


def test_a_terminal_that_cannot_show_a_name_gets_it_escaped(tmp_path: Path) -> None:
    path = two_days(tmp_path / "größe").write()
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "sparkreplay", "scan", path],
        cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and r"gr\xf6\xdfe" in done.stdout, done.stderr
