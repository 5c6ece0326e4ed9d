"""Python's collector of cycles, in a process that keeps many objects for long.

A full collection scans all kept objects. In a controller of a thousand broker sets that takes longer than some timeouts and
frees nothing, because those objects live on.

Invariant: a collection scans only objects made since the one before, until the kept objects have doubled; then one scans all
again. So ended cycles among the kept objects take at most as much memory as those, and a collection's duration depends on the
number of new objects."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Protocol

KEPT_MIN = 1_000_000
"""Fewer objects than this never cause a full collection for having doubled."""
OLDEST = 2


class Cycles(Protocol):
    """The part of the module `gc` that is used."""

    callbacks: list[Any]

    @property
    def get_objects(self) -> Callable[..., list[Any]]: ...

    def freeze(self) -> None: ...

    def unfreeze(self) -> None: ...

    def get_freeze_count(self) -> int: ...


class GcTuner:
    """One per process; call `start` once."""

    def __init__(self, cycles: Cycles = gc, kept_min: int = KEPT_MIN) -> None:
        self._cycles = cycles
        self._kept_min = self._kept_max = kept_min
        self._kept = 0
        """Objects at the last full collection, including those that have ended since."""
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
