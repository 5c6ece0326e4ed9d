"""The commands of README.md and docs/ run unchanged in their own folder, next to one cluster."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from tests.process.forkedcommands import ForkedCommands
from tests.support.documentedcommands import BLOCK, COMMANDS, DOWN, ROOT, TOPIC, UP, Run


def environment(folder: Path) -> dict[str, str]:
    paths = {"PATH": f"{folder.resolve()}/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **paths}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's folder: our programs and `python` on the PATH and scripts/ below, for the Python of the
    tests."""
    folder = tmp_path_factory.mktemp("reader")
    names = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    modules = {f"bin/{name}": entry.partition(".__main__")[0] for name, entry in names.items()}
    for script in ("scripts/cluster", "scripts/drill"):
        module = re.search(r'-m (\S+) "\$@"$', (ROOT / script).read_text(), re.MULTILINE)
        assert module is not None, f"{script} runs a module"
        modules[script] = module.group(1)
    commands = {name: f"-P -m {module_name}" for name, module_name in modules.items()}
    for name, arguments in {**commands, "bin/python": ""}.items():
        program = folder / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        program.chmod(0o755)
    return folder


def run(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", line]
    return subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster, started and finally removed by the documented commands."""
    done = run(folder, UP)
    assert done.returncode == 0 and "data, logs and *.conf are in" in done.stdout, done.stderr
    with Cluster.open(folder / "run/demo") as cluster:
        yield cluster
        done = run(folder, DOWN)
        assert done.returncode == 0 and "is removed" in done.stdout, done.stderr
    assert not (folder / "run/demo").exists()


RUN = {name: how for name, how in COMMANDS.items() if isinstance(how, Run)}
OF_MODULES = [name for name, how in RUN.items() if name.startswith("python -m ") and how.options == "--help"]


@pytest.mark.parametrize("command", [name for name in RUN if name not in OF_MODULES])
def test_a_documented_command_has_the_expected_output(command: str, folder: Path, cluster: Cluster) -> None:
    how = RUN[command]
    done = run(folder, as_run(command, how, cluster))
    assert done.returncode == 0, done.stderr
    assert how.shows in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("command", OF_MODULES)
def test_a_documented_module_prints_its_help(command: str, commands: ForkedCommands) -> None:
    done = commands.run(*command.split()[2:], "--help")
    assert done.returncode == 0 and RUN[command].shows in done.stdout, done.stdout + done.stderr


def a_slave(cluster: Cluster) -> int:
    """A slave of the set in sync. Any broker may have become the first master."""
    state = asyncio.run(cluster.wait_whole())
    return next(replica.broker_id for replica in state.in_sync if replica.broker_id != state.master_id)


def as_run(command: str, how: Run, cluster: Cluster) -> str:
    layout = cluster.layout
    line = f"cd {how.folder} && {command} {how.options}"
    values = {
        "CONTROLLERS": shlex.quote(layout.controller_list),
        "CONTROLLER": layout.address("controller-0"),
        "NAMESRV": layout.namesrv,
        "BROKER_ID": str(a_slave(cluster)) if "BROKER_ID" in command else "",
        "BROKER": layout.address("broker-0"),
    }
    for old, new in how.instead:
        line = line.replace(old, new)
    return re.sub(r"\b(?:" + "|".join(values) + r")\b", lambda name: values[name.group()], line)


def test_the_documented_python_programs_work(folder: Path, cluster: Cluster, tmp_path: Path) -> None:
    programs = [
        body
        for document in ("docs/clients.md", "README.md")
        for kind, body in BLOCK.findall((ROOT / document).read_text())
        if kind == "python" and "mqclient" in body  # the others run in the tests of other clients
    ]
    assert len(programs) == 6
    made = run(folder, TOPIC.replace("NAMESRV", cluster.layout.namesrv))
    assert made.returncode == 0, made.stderr
    said = []
    for number, program in enumerate(programs):
        file = tmp_path / f"program{number}.py"
        file.write_text(program.replace("127.0.0.1:9876", cluster.layout.namesrv))
        done = run(folder, f"python {file}")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        said.append(done.stdout.splitlines())
    sent, read, synchronously, replied, ended, first = said
    assert [line.split()[-1] for line in sent] == ["SEND_OK"] * 10
    assert sorted(line.split(" ", 1)[1] for line in read) == sorted(f"order {number}" for number in range(10))
    assert [line.split(" ", 1)[1][:6] for line in synchronously] == ["order "]
    assert replied == ["yes, is order 7 there?"]
    assert ended == [
        f"booking-{number} is {'rolled back' if number % 2 else 'committed'}" for number in range(4)
    ]
    assert [line.split(" ", 1)[1] for line in first] == ["order 7"]


TUTORIALS = {
    "first-message": ("SEND_OK", "read order 7"),
    "first-failover": ("signalled broker-", " acknowledged, ", ", 0 lost\n", "started broker-"),
    "first-spark-read": ("clicks", "export is done: 300 rows"),
}
"""Tutorial -> what its commands print."""


def script_of(tutorial: str, cluster: Cluster) -> str:
    """All blocks of a tutorial as a bash script: a program is written to the file that the text before it
    names."""
    text = (ROOT / f"docs/tutorials/{tutorial}.md").read_text()
    parts = ["set -eu"]
    for block in BLOCK.finditer(text):
        kind, body = block.groups()
        if kind == "python":
            name = re.findall(r"`(\w+\.py)`", text[: block.start()])[-1]
            parts.append(f"cat >{name} <<'PROGRAM'\n{body}PROGRAM")
        elif kind == "sh":
            parts += [line for line in body.splitlines() if line not in (DOWN, "python clicks.py")]
    first = int(cluster.layout.namesrv.rpartition(":")[2])
    return re.sub(
        r"127\.0\.0\.1:(98\d\d)",
        lambda port: f"127.0.0.1:{first + int(port.group(1)) - 9876}",
        "\n".join(parts),
    )


@pytest.mark.parametrize("tutorial", TUTORIALS)
def test_a_tutorial_prints_what_it_shows(tutorial: str, folder: Path, cluster: Cluster) -> None:
    """Runs on the running cluster, which the command that starts one finds."""
    activate = folder / ".venv/bin/activate"
    activate.parent.mkdir(parents=True, exist_ok=True)
    activate.touch()
    done = run(folder, script_of(tutorial, cluster))
    assert done.returncode == 0, done.stdout + done.stderr
    assert not [shown for shown in TUTORIALS[tutorial] if shown not in done.stdout], done.stdout


def test_each_tutorial_has_a_test() -> None:
    assert {page.stem for page in (ROOT / "docs/tutorials").glob("*.md")} == TUTORIALS.keys()


def test_the_live_view_draws_on_a_terminal_until_it_is_interrupted(folder: Path, cluster: Cluster) -> None:
    ours, theirs = pty.openpty()
    command = ["mqadmin", "watch", "-n", cluster.layout.namesrv]
    process = subprocess.Popen(command, env=environment(folder), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    drawn = b""
    while b"of DefaultCluster" not in drawn:
        drawn += os.read(ours, 65536)
    process.send_signal(signal.SIGINT)
    with suppress(OSError):  # EIO: the other end is closed
        while part := os.read(ours, 65536):
            drawn += part
    os.close(ours)
    assert process.wait() == 0
    assert b"Traceback" not in drawn
