"""The live view before, during and after the loss of a master and of the leading controller, on real
processes.

The tests share the cluster and run in order."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from localcluster.cluster import Cluster
from localcluster.waiting import NotYet, wait_for
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS

ROOT = Path(__file__).parents[2]
MOMENTS = ("heardMs", "noticedMs", "proposedMs", "electedMs", "notifiedMs", "writableMs")
MISSED = "notifiedMs"
"""Not reported if the master had asked, and acted, before it was notified."""
ALTERNATE_SCREEN, FORMER_SCREEN, SHOW_CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.create(tmp_path_factory.mktemp("watched"), broker_settings=NOBODY_IS_LATE) as made:
        made.start()
        asyncio.run(made.wait_whole(timeout_ms=WAIT_MS))
        yield made


def watch(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mqadmin", "watch", "-n", cluster.layout.namesrv, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def broker_set(cluster: Cluster) -> Any:
    """The set in the view, once a controller leads."""

    async def look() -> Any:
        done = watch(cluster, "--json")
        if done.returncode != 0:
            raise NotYet(done.stderr)
        [seen] = json.loads(done.stdout)["view"]["sets"]
        return seen

    return asyncio.run(wait_for("a look that succeeds", look, WAIT_MS))


def story_once(cluster: Cluster, wanted: Callable[[list[Any]], bool]) -> list[Any]:
    """Waits until the reported elections satisfy `wanted`; returns them, newest first."""

    async def look() -> list[Any]:
        done = watch(cluster, "--json")
        sets = json.loads(done.stdout)["view"]["sets"] if done.returncode == 0 else []
        story = [one["reported"] for row in sets for one in row["elections"]]
        if not story or not wanted(story):
            raise NotYet(f"{story} {done.stderr}")
        return story

    return asyncio.run(wait_for("a story as wanted", look, WAIT_MS))


def in_order(reported: Any, names: Sequence[str]) -> None:
    moments = [reported[name] for name in names if name != MISSED or reported[name] is not None]
    assert moments == sorted(moments)


def name_of(cluster: Cluster, address: str) -> str:
    """The process that listens there."""
    name = cluster.layout.name_of(address)
    assert name is not None
    return name


def test_the_first_election_is_reported(cluster: Cluster) -> None:
    story_once(cluster, lambda story: story[0]["writableMs"] is not None)
    seen = broker_set(cluster)
    [election] = seen["elections"]
    reported = election["reported"]
    assert (reported["epoch"], reported["oldMasterId"], reported["newMasterId"]) == (
        1,
        None,
        seen["masterId"],
    )
    assert reported["reason"] == election["why"] == "first election"
    in_order(reported, MOMENTS[2:])


def test_the_election_after_a_killed_master_has_the_complete_timeline(cluster: Cluster) -> None:
    before = broker_set(cluster)
    killed_ms = time.time_ns() // 1_000_000
    cluster.kill([name_of(cluster, before["masterAddress"])])
    during = watch(cluster, "--once")
    assert "master" in during.stdout
    assert during.stderr.count("\n") <= 1

    reported = story_once(
        cluster, lambda story: story[0]["epoch"] > 1 and story[0]["writableMs"] is not None
    )[0]
    assert (reported["epoch"], reported["oldMasterId"], reported["reason"]) == (
        2,
        before["masterId"],
        "connection lost",
    )
    in_order(reported, MOMENTS)
    assert killed_ms <= reported["noticedMs"]
    lines = watch(cluster, "--once").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].endswith("; connection lost")
    assert f"{reported['oldMasterId']} -> {reported['newMasterId']}" in "\n".join(lines)


def test_all_controllers_report_an_election_after_the_leader_stops_and_returns(
    cluster: Cluster,
) -> None:
    story = story_once(cluster, lambda story: True)
    leader = name_of(cluster, asyncio.run(cluster.wait_leader()))
    cluster.stop([leader])
    seen = story_once(cluster, lambda story: story[0]["writableMs"] is not None)
    fields = ("epoch", "oldMasterId", "newMasterId", "reason")
    assert [[one[name] for name in fields] for one in seen] == [
        [one[name] for name in fields] for one in story
    ]
    cluster.start([leader])

    assert story_once(cluster, lambda again: again == story)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_the_live_view_restores_the_terminal(cluster: Cluster, number: signal.Signals, status: int) -> None:
    arguments = ["mqadmin", "watch", "-n", cluster.layout.namesrv]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-m", *arguments])
    drawn = read_until(terminal, b"says that the leader is")
    if number is signal.SIGINT:
        os.write(terminal, b"\x03")
    else:
        os.kill(pid, number)
    drawn += read_until(terminal, None)
    _, ended = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(ended) == status
    assert drawn.count(ALTERNATE_SCREEN) == drawn.count(FORMER_SCREEN) == 1
    assert drawn.rindex(SHOW_CURSOR) > drawn.rindex(b"says that the leader is")
    assert b"Traceback" not in drawn


def read_until(terminal: int, wanted: bytes | None) -> bytes:
    """The drawn bytes until `wanted` appears, or with None until the process ends."""
    drawn = b""
    while wanted is None or wanted not in drawn:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # the process ended
            part = b""
        if not part:
            assert wanted is None, drawn
            break
        drawn += part
    return drawn
