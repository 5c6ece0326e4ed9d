"""Counts of runs, which add up over seeds."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Totals:
    """`faults` are the faults that happened, by kind. `began_s` is the CPU time of this process when counting began."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    simulated_ms: int = 0
    began_s: float = field(default_factory=time.process_time)

    def lines(self) -> list[str]:
        seconds, simulated_s = time.process_time() - self.began_s, self.simulated_ms / 1000
        speed = simulated_s / max(seconds, 0.001)
        return [
            " · ".join(f"{name} {count}" for name, count in sorted(self.counts.items())),
            "faults: " + " · ".join(f"{name} {count}" for name, count in sorted(self.faults.items())),
            f"{simulated_s:.0f} simulated s in {seconds:.1f} s of CPU: {speed:.0f} x real time",
        ]
