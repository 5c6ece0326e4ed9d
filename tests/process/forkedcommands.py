"""Commands run in forks of one process that has imported their modules, because imports take most of a short
run.

Invariant: a command has the outcome of its `python -m`, in the folder and environment of the first command.
The documented commands prove that commands start as processes."""

from __future__ import annotations

import json
import subprocess
from typing import Self

from scripts.peers.peerprocess import PeerProcess
from tests.process.serverprocess import ENVIRONMENT, command


class ForkedCommands:
    def __init__(self) -> None:
        self._forks = PeerProcess(command("tests.support.moduleforks"), ENVIRONMENT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._forks.__exit__(*error)

    def run(self, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Returns the same as subprocess.run."""
        ended = self._forks.ask(json.dumps([module, *arguments]))
        return subprocess.CompletedProcess([module, *arguments], ended["code"], ended["out"], ended["err"])


def run(commands: ForkedCommands, module: str, *arguments: str, code: int = 0) -> str:
    """The output of a command that exits with `code`."""
    done = commands.run(module, *arguments)
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert "Traceback" not in said
    return said
