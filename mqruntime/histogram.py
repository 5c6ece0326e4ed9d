"""Counts of measured values by bucket.

Invariant: every observation is in exactly one bucket; a value equal to a bound belongs to that bound. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """`counts[i]` observations are above `bounds[i - 1]` and at most `bounds[i]`; the last are above all bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """`value` was seen `count` times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count
