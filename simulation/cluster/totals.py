"""Counts of runs, which add up over seeds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Totals:
    """`faults` are those that happened, by kind."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    simulated_ms: int = 0

    def lines(self) -> list[str]:
        return [
            " · ".join(f"{name} {count}" for name, count in sorted(self.counts.items())),
            "faults: " + " · ".join(f"{name} {count}" for name, count in sorted(self.faults.items())),
        ]
