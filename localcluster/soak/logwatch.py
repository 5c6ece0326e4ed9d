"""What the processes of a cluster log that nobody should have to read: errors, and Python's own last words.

Invariant: each line is looked at once, when it is complete, and only the first TOLD_MAX are kept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from localcluster.logs import LINE

TOLD_MAX = 50
LINE_MAX = 400
BAD_LEVELS = frozenset({"ERROR", "CRITICAL"})
LAST_WORDS = re.compile(r"Traceback \(most recent call last\)|Fatal Python error|\w+Error: ")
EXPECTED: tuple[re.Pattern[str], ...] = ()
"""Errors that a strike explains: none."""


def is_bad(line: str) -> bool:
    """Whether a line of a log is an error that no strike explains."""
    match = LINE.match(line)
    if match is None:
        return LAST_WORDS.match(line) is not None
    return match.group(2) in BAD_LEVELS and not any(pattern.search(line) for pattern in EXPECTED)


class LogWatch:
    """Follows files by name; one that is not there yet has no lines."""

    def __init__(self, files: Iterable[tuple[str, Path]]) -> None:
        self.bad = 0
        self.told: list[str] = []
        self._files = list(files)
        self._read = dict.fromkeys((name for name, _ in self._files), 0)

    def look(self) -> None:
        """Takes in what was added since the last look."""
        for name, path in self._files:
            try:
                with path.open("rb") as file:
                    file.seek(self._read[name])
                    data = file.read()
            except FileNotFoundError:
                continue
            complete = data.rpartition(b"\n")[0]
            self._read[name] += len(complete) + bool(complete)
            for line in complete.decode(errors="replace").splitlines():
                if is_bad(line):
                    self.bad += 1
                    if len(self.told) < TOLD_MAX:
                        self.told.append(f"{name}: {line[:LINE_MAX]}")
