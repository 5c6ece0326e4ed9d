"""Commands run in forks of one process that has imported what they are made of: most of what a short one takes are imports.

Invariant: a command ends as its `python -m` would, in the folder and with the environment in which the first was asked for.
That commands start by themselves is shown by the documented ones."""

from __future__ import annotations

import json
import subprocess
from typing import Self

from scripts.peers.peerprocess import PeerProcess
from tests.process.serverprocess import ENVIRONMENT, command


class ForkedCommands:
    def __init__(self) -> None:
        self._forks = PeerProcess(command("tests.moduleforks"), ENVIRONMENT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._forks.__exit__(*error)

    def run(self, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """As subprocess.run of it, once it has ended."""
        ended = self._forks.ask(json.dumps([module, *arguments]))
        return subprocess.CompletedProcess([module, *arguments], ended["code"], ended["out"], ended["err"])
