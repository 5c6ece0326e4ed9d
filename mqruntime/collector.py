"""Python's collector of cycles, in a process that keeps a lot for long.

A full collection looks at all that is kept, which holds a controller of a thousand broker sets for longer than some timeouts
and finds nothing, for what is kept long lives on.

Invariant: a collection looks at what came since the one before it alone, until what is kept has doubled; then one looks at all
again. So cycles that ended among the kept take no more memory than is kept anyway, and how long a collection lasts goes with
what is new."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Protocol

KEPT_MIN = 1_000_000
"""Objects; so few are never looked through for having doubled."""
OLDEST = 2


class Cycles(Protocol):
    """The part of the module `gc` that is needed."""

    callbacks: list[Any]

    @property
    def get_objects(self) -> Callable[..., list[Any]]: ...

    def freeze(self) -> None: ...

    def unfreeze(self) -> None: ...

    def get_freeze_count(self) -> int: ...


class Collector:
    """Of one process; `start` it once."""

    def __init__(self, cycles: Cycles = gc, kept_min: int = KEPT_MIN) -> None:
        self._cycles = cycles
        self._kept_min = self._kept_max = kept_min
        self._kept = 0
        """Since the last look at all, those counted too that have ended since."""
        self._looks_at_all = False

    def start(self) -> None:
        self._cycles.callbacks.append(self._collected)

    def _collected(self, phase: str, what: dict[str, int]) -> None:
        if phase != "stop" or what["generation"] != OLDEST:
            return
        self._kept += len(self._cycles.get_objects(generation=OLDEST))
        self._cycles.freeze()
        if self._looks_at_all:
            self._looks_at_all = False
            self._kept_max = max(self._kept_min, 2 * self._kept)
        elif self._kept > self._kept_max:
            self._kept = self._cycles.get_freeze_count()
            if self._kept > self._kept_max:
                self._cycles.unfreeze()
                self._kept, self._looks_at_all = 0, True
