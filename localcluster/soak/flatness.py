"""Decides whether a metric is flat or grows with time.

Invariant: the first third of a run never counts, because caches fill, and nothing is old enough for retention yet. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

SPAN_S_MIN = 600
SAMPLES_MIN = 12
"""With fewer values in a third there is no verdict."""


class Allowance(NamedTuple):
    """The median of the last third may exceed that of the middle third by the factor `share` and, in addition, by `more`."""

    share: float
    more: float


class Flatness(NamedTuple):
    """The medians of the middle and the last third, and the limit of the last third's median."""

    middle: float
    last: float
    limit: float

    @property
    def is_flat(self) -> bool:
        return self.last <= self.limit


def flatness(times_s: Sequence[float], values: Sequence[float], allowance: Allowance) -> Flatness | None:
    """The flatness of values at growing times. A missing value is NaN. None if the run is too short."""
    if not times_s or times_s[-1] - times_s[0] < SPAN_S_MIN:
        return None
    first, span = times_s[0], times_s[-1] - times_s[0]
    thirds: tuple[list[float], list[float], list[float]] = ([], [], [])
    for time_s, value in zip(times_s, values, strict=True):
        if not math.isnan(value):
            thirds[min(int(3 * (time_s - first) / span), 2)].append(value)
    if min(len(thirds[1]), len(thirds[2])) < SAMPLES_MIN:
        return None
    middle, last = statistics.median(thirds[1]), statistics.median(thirds[2])
    return Flatness(middle, last, middle * (1 + allowance.share) + allowance.more)
