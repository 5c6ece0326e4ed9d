"""Finds log lines of a cluster's processes that should not occur: errors, and Python's own tracebacks.

Invariant: each line is checked once, when it is complete, and only the first LINES_MAX are kept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from localcluster.logs import LINE

LINES_MAX = 50
LINE_MAX = 400
BAD_LEVELS = frozenset({"ERROR", "CRITICAL"})
LAST_WORDS = re.compile(r"Traceback \(most recent call last\)|Fatal Python error|\w+Error: ")
EXPECTED: tuple[re.Pattern[str], ...] = ()
"""Errors that a fault explains. There are none."""


def is_bad(line: str) -> bool:
    """Whether a line of a log is an error that no fault explains."""
    match = LINE.match(line)
    if match is None:
        return LAST_WORDS.match(line) is not None
    return match.group(2) in BAD_LEVELS and not any(pattern.search(line) for pattern in EXPECTED)


class LogWatch:
    """Follows files by name. An absent file has no lines."""

    def __init__(self, files: Iterable[tuple[str, Path]]) -> None:
        self.bad = 0
        self.lines: list[str] = []
        self._files = list(files)
        self._read = dict.fromkeys((name for name, _ in self._files), 0)

    def look(self) -> None:
        """Check the lines added since the last call."""
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
                    if len(self.lines) < LINES_MAX:
                        self.lines.append(f"{name}: {line[:LINE_MAX]}")
