"""First programs of docs/clients.md for other clients, unchanged except for address, topic, group and
timeouts."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from scripts.peers.javapeer import JARS, QUICK_START, SOURCES, missing
from scripts.peers.waits import WAIT_MS

PAGE = (Path(__file__).parents[2] / "docs/clients.md").read_text()
ORDERS = [f"order {number}" for number in range(10)]


def program(language: str, client: str, cluster: Cluster, topic: str) -> str:
    """The one block of the page in `language` that imports `client`."""
    blocks: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    [found] = [block for block in blocks if client in block]
    for old, new in (
        ("127.0.0.1:9876", cluster.layout.namesrv),
        ("orders", topic),
        ("billing", f"{topic}-billing"),
    ):
        assert f'"{old}"' in found
        found = found.replace(f'"{old}"', f'"{new}"')
    return found


def said(command: list[str], home: Path) -> list[str]:
    """Checks that all messages were sent and then read in this order."""
    done = subprocess.run(
        command,
        env={**os.environ, "HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=WAIT_MS / 1000,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r"^(?:sent|read) .*$", done.stdout, re.MULTILINE)


def patient(java: str) -> str:
    """With a timeout above the default of three seconds, in which a JVM on a busy machine has not loaded its
    classes."""
    for client, settings in (
        ("producer", ["setSendMsgTimeout", "setMqClientApiTimeout"]),
        ("consumer", ["setMqClientApiTimeout"]),
    ):
        assert f" {client}.start();" in java
        set_all = "".join(f" {client}.{setting}({WAIT_MS});" for setting in settings)
        java = java.replace(f" {client}.start();", f"{set_all} {client}.start();")
    return java


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_the_first_program_for_java_sends_and_reads(cluster: Cluster, tmp_path: Path) -> None:
    source = tmp_path / "First.java"
    source.write_text(patient(program("java", "org.apache.rocketmq", cluster, "FirstOfJava")))
    path = os.pathsep.join([str(SOURCES), f"{JARS}/*"])  # with a configuration of its logger
    lines = said(
        ["java", "-Xmx128m", *QUICK_START, f"-Duser.home={tmp_path}", "-cp", path, str(source)], tmp_path
    )
    assert lines[:10] == ["sent SEND_OK"] * 10
    assert sorted(lines[10:]) == [f"read {order}" for order in ORDERS]


@pytest.mark.skipif(
    importlib.util.find_spec("rocketmq") is None,
    reason="no C++ client: its wheel `rocketmq` 0.4.4 is for Linux on x86-64",
)
def test_the_first_program_for_cpp_sends_and_reads(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "first.py"
    file.write_text(program("python", "rocketmq.client", cluster, "FirstOfCpp"))
    lines = said([sys.executable, "-P", str(file)], tmp_path)
    assert lines[:10] == ["sent OK"] * 10
    assert sorted(lines[10:]) == [f"read {order}" for order in ORDERS]
