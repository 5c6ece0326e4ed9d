"""Run the commands of a document as written, with values in place of the words in capitals.

Invariant: only commands of the document are run. At the end it is known which of them were never run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = ("mqadmin", "mqreplay")


class Runbook:
    """The commands. `folder` is the working directory."""

    def __init__(self, document: Path, folder: Path) -> None:
        blocks = BLOCK.findall(document.read_text())
        lines = [re.sub(r" +# .*", "", line).strip() for block in blocks for line in block.splitlines()]
        self.commands = [line for line in lines if line]
        self.unused = set(self.commands)
        self._folder = folder

    def taken(self, command: str) -> None:
        """Note that a command was done in another way, such as a server's start, because the test must own the process."""
        assert command in self.commands, f"the document does not say: {command}"
        self.unused.discard(command)

    def run(self, command: str, **words: object) -> str:
        """Run a command, which must succeed, and return its output. A list becomes several arguments."""
        self.taken(command)
        line = command
        for word, value in words.items():
            values = value if isinstance(value, list) else [value]
            line = re.sub(rf"\b{word}\b", " ".join(shlex.quote(str(each)) for each in values), line)
        program, _, rest = line.partition(" ")
        if program in PROGRAMS or line.startswith("python -m"):
            module, rest = (program, rest) if program in PROGRAMS else rest.removeprefix("-m ").split(" ", 1)
            module = {"mqreplay": "sparkreplay"}.get(module, module)
            line = f"{shlex.quote(sys.executable)} -P -m {module} {rest}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            ["bash", "-c", line], cwd=self._folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout
