"""Metrics over time, in bounded memory.

Invariant: there are never more than ROWS_MAX moments. When that number is reached, every second recorded moment is dropped, and
from then on moments are recorded half as often. This is repeated each time. So the moments are spread evenly over the run.
Pure."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping

ROWS_MAX = 1200
NOT_KNOWN = math.nan


class Recording:
    def __init__(self, rows_max: int = ROWS_MAX) -> None:
        assert rows_max % 2 == 0
        self.times_s = array("d")
        self.columns: dict[str, array[float]] = {}
        self._rows_max = rows_max
        self._stride = 1
        self._skipped = 0

    def add(self, time_s: float, row: Mapping[str, float]) -> None:
        """Add the values of one moment, by name. Missing values are unknown."""
        self._skipped += 1
        if self._skipped < self._stride:
            return
        self._skipped = 0
        for name in row:
            if name not in self.columns:
                self.columns[name] = array("d", [NOT_KNOWN]) * len(self.times_s)
        self.times_s.append(time_s)
        for name, column in self.columns.items():
            column.append(row.get(name, NOT_KNOWN))
        if len(self.times_s) >= self._rows_max:
            self._thin()

    def column(self, name: str) -> array[float]:
        """All values of one metric, NOT_KNOWN where it is missing."""
        return self.columns.get(name) or array("d", [NOT_KNOWN]) * len(self.times_s)

    def _thin(self) -> None:
        self._skipped = self._stride  # the last moment was dropped too
        self._stride *= 2
        self.times_s = self.times_s[::2]
        self.columns = {name: column[::2] for name, column in self.columns.items()}
