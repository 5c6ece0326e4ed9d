"""The replicated counter of docs/dledger.md, unchanged: three processes count together, and continue without
one."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.process.serverprocess import ENVIRONMENT, ROOT
from tests.unit.dledger.ledgergroup import free_ports

PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IDS = ("n0", "n1", "n2")


class Counters:
    """The processes. Each answers a line with a line."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        [program] = PROGRAM.findall((ROOT / "docs" / "dledger.md").read_text())
        (folder / "counter.py").write_text(program)
        peers = ";".join(
            f"{name}-127.0.0.1:{port}" for name, port in zip(IDS, free_ports(len(IDS)), strict=True)
        )
        self.processes = {
            name: stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "counter.py", name, peers, name],
                    cwd=folder,
                    env=ENVIRONMENT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for name in IDS
        }
        for process in self.processes.values():
            stack.callback(process.kill)

    def said(self, name: str, line: str) -> str:
        process = self.processes[name]
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    def leader_says(self, line: str) -> tuple[str, str]:
        """The leader and its answer."""
        for name in itertools.cycle(self.processes):
            answer = self.said(name, line)
            if not answer.startswith("the leader is"):
                return name, answer
        raise AssertionError


@pytest.fixture
def counters(tmp_path: Path) -> Iterator[Counters]:
    with ExitStack() as stack:
        yield Counters(tmp_path, stack)


def test_the_documented_counter_counts_and_outlives_its_leader(counters: Counters) -> None:
    leader, answer = counters.leader_says("5")
    assert answer == "5"
    assert counters.said(leader, "seven") == "seven is no whole number"
    assert counters.said(leader, "-2") == "3"
    assert counters.said(leader, "?") == "3"
    counters.processes.pop(leader).kill()
    successor, answer = counters.leader_says("?")
    assert successor != leader and answer == "3"
    assert counters.said(successor, "4") == "7"
