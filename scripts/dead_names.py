"""Names of the product that the product does not use, as vulture finds them. A name that only a test or the simulator uses is
dead, too.

Invariant: each word in dead_names.kept keeps a name. A word that keeps no name is reported like a dead name."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "scripts" / "dead_names.kept"
USED_BY_DECORATOR = "@field_validator,@model_validator,@*.command,@admin_command"
FOUND = re.compile(r"(\S+?):\d+: unused (\w+) '(\w+)'")


class Kept(NamedTuple):
    place: str
    kind: str
    name: str


def kept_in(text: str) -> Iterator[Kept]:
    for line in text.splitlines():
        if line and not line.startswith("#"):
            place, kind, *names = line.split()
            yield from (Kept(place, kind, name) for name in names)


def reported(found: Iterable[str], kept: Iterable[Kept]) -> list[str]:
    """The lines of dead names that no word keeps, and then the words that keep no name."""
    dead, idle = [], {*kept}
    for line in found:
        match = FOUND.match(line)
        keepers = {each for each in kept if match and all(map(fnmatchcase, match.groups(), each))}
        idle -= keepers
        if not keepers:
            dead.append(line)
    return dead + sorted(f"dead_names.kept: {' '.join(each)} keeps nothing" for each in idle)


def main(packages: list[str]) -> int:
    command = [
        sys.executable,
        "-m",
        "vulture",
        *packages,
        "scripts",
        "--ignore-decorators",
        USED_BY_DECORATOR,
    ]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    sys.stderr.write(run.stderr)
    lines = reported(run.stdout.splitlines(), [*kept_in(KEPT.read_text())])
    print(*lines, sep="\n", end="\n" if lines else "")
    return 1 if lines or run.stderr else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
