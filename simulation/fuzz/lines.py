"""Records which lines of the product a call runs, and stops a call that does not end.

Invariant: a call that runs more than `steps_max` lines is aborted by TooMuchWork. No clock is used, so the result is the same
on any machine. Only one such watch runs at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

Tracer = Callable[[FrameType, str, Any], Any]


class TooMuchWork(BaseException):
    """The call ran too many lines. This is no Exception, because an aborted decoder must not take it for a bad input."""


class Lines:
    """The lines that have run since the object was made, by function, in files below `root`."""

    def __init__(self, root: Path, packages: tuple[str, ...]) -> None:
        self.ran: dict[CodeType, set[int]] = {}
        self._below = tuple(f"{root / package}/" for package in packages)
        self._ours: dict[str, bool] = {}
        self._news = False
        self._left = 0

    def watched(self, call: Callable[[], object], steps_max: int) -> bool:
        """Run `call`, and return whether it ran a new line. Raises TooMuchWork and the errors of `call`."""
        self._news, self._left = False, steps_max
        before = sys.gettrace()
        sys.settrace(self._entered)
        try:
            call()
        finally:
            sys.settrace(before)
        return self._news

    @property
    def has_news(self) -> bool:
        """Whether the last call ran a new line, even if it raised."""
        return self._news

    def counts(self) -> tuple[int, int]:
        """How many lines ran, and how many the entered functions have."""
        return sum(len(ran & lines_of(code)) for code, ran in self.ran.items()), sum(
            len(lines_of(code)) for code in self.ran
        )

    def missed(self) -> dict[str, list[int]]:
        """By file: the lines of entered functions that did not run."""
        found: dict[str, set[int]] = {}
        for code, ran in self.ran.items():
            found.setdefault(code.co_filename, set()).update(lines_of(code) - ran)
        return {name: sorted(lines) for name, lines in found.items() if lines}

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Tracer | None:
        name = frame.f_code.co_filename
        ours = self._ours.get(name)
        if ours is None:
            ours = self._ours[name] = name.startswith(self._below)
        if not ours:
            return None
        ran = self.ran.setdefault(frame.f_code, set())

        def line(frame: FrameType, event: str, argument: Any) -> Tracer:
            if event == "line":
                self._left -= 1
                if self._left < 0:
                    raise TooMuchWork
                if frame.f_lineno not in ran:
                    ran.add(frame.f_lineno)
                    self._news = True
            return line

        return line


def lines_of(code: CodeType) -> set[int]:
    """The lines that a run of the code's body can reach."""
    return {line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno}
