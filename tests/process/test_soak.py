"""A very short soak of real processes: to its end, and interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localcluster.processes import ProcessTable
from scripts.peers.waits import WAIT_S

ROOT = Path(__file__).parents[2]
SMALL = ["--segment", "131072", "--body", "2048", "--rate", "50"]


SOAK = ("localcluster.soak.cli",)
FORKING = ("tests.support.forkedservers", *SOAK)


def begun(folder: Path, *options: str, program: tuple[str, ...] = FORKING) -> subprocess.Popen[str]:
    """A soak whose cluster, page and temporary files are in `folder`."""
    command = [
        sys.executable,
        "-m",
        *program,
        *SMALL,
        *options,
        "--out",
        str(folder / "page.html"),
    ]
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def drawn(page: Path) -> dict[str, dict[str, list[float | None]]]:
    """Heading of each chart -> name of each line -> its values."""
    html = page.read_text()
    found = re.search(r'id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    headings = re.findall("<h2>([^<]*)</h2><div", html)
    lines = [{line["name"]: line["values"] for line in chart["lines"]} for chart in data["charts"]]
    return dict(zip(headings, lines, strict=True))


def until(process: subprocess.Popen[str], holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not holds():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline_s
        time.sleep(0.5)


@pytest.mark.long
def test_a_soak_ends_and_finds_every_message(tmp_path: Path) -> None:
    options = ("--hours", "0.005", "--reserved", str(WAIT_S), "--only", "kill-master", "--only", "elect")
    process = begun(tmp_path, *options, program=SOAK)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert "BROKEN" not in said
    assert re.search(
        r"holds  acknowledged messages lost: 0; [1-9][\d,]* retained ones read again at the end", said
    ), said
    assert re.search(r"messages: [1-9][\d,]* acknowledged", said), said
    assert re.search(r"SIGKILL broker-\d|electMaster broker-\d", said), said
    charts = drawn(tmp_path / "page.html")
    for heading in ("anonymous memory", "open descriptors", "disk taken by the store"):
        assert {*charts[heading]} >= {"namesrv", "controller-0", "broker-2"}
        assert all(any(values) for name, values in charts[heading].items() if "-" in name), heading
    assert any(charts["acknowledged messages a second"]["load"])
    assert "came to its end" in (tmp_path / "page.html").read_text()
    assert not list(tmp_path.glob("autoswitch-mq-soak-*")), "a run that passed leaves only its page"


@pytest.mark.long
def test_a_soak_of_a_raft_mode_set_runs_its_strikes_without_controllers(tmp_path: Path) -> None:
    process = begun(
        tmp_path, "--mode", "raft", "--hours", "0.001", "--reserved", str(WAIT_S), "--only", "kill-master"
    )
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert re.search(r"holds  acknowledged messages lost: 0; [1-9][\d,]* retained ones", said), said
    assert re.search(r"SIGKILL broker-\d", said), said
    charts = drawn(tmp_path / "page.html")
    assert {*charts["anonymous memory"]} == {"namesrv", "broker-0", "broker-1", "broker-2", "load"}


def test_an_interrupted_soak_leaves_its_page_and_no_process(tmp_path: Path) -> None:
    process = begun(tmp_path, "--hours", "1", "--reserved", "5", "--only", "restart-controller")
    page = tmp_path / "page.html"

    def retention_works_under_strikes() -> bool:
        """No broker is killed: one that is down for longer than the retention could not return."""
        if not page.exists() or "started after" not in page.read_text():
            return False
        first = drawn(page)["first offset of the log"]
        return all(any(values) for values in first.values())

    until(process, retention_works_under_strikes)
    [folder] = tmp_path.glob("autoswitch-mq-soak-*")
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate()
    assert process.returncode == 130, said
    assert "interrupted; drawn in" in said
    html = page.read_text()
    assert "interrupted" in html and "not read again yet" in html and "BROKEN" not in html
    assert all(record.identity.state() is None for record in ProcessTable(folder).read().values())
