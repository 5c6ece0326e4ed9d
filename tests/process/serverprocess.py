"""A server in its own process, started as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def command(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", module, *arguments]


class ServerProcess:
    """`said` is the stderr that was waited for. The process never outlives the test."""

    def __init__(self, module: str, *arguments: str) -> None:
        self.said = ""
        self._process = subprocess.Popen(
            command(module, *arguments), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._process:
            self._process.kill()

    def wait_to_say(self, words: str) -> None:
        """Waits until stderr has these words; fails if the process ends first."""
        assert self._process.stderr is not None
        while words not in self.said:
            line = self._process.stderr.readline()
            assert line, f"it ended: {self.said}"
            self.said += line

    def stop(self) -> int:
        """Stops it and returns its exit code. The limit of three seconds is tested on virtual time."""
        self._process.terminate()
        self.said += self._process.communicate()[1]
        return self._process.returncode
