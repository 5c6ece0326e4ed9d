"""The time of a sync on the disk, in the same run as the figures that depend on it."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from scripts.bench.measured import high

SYNCS = 200
BYTES = 4096


def sync_probe_ms(folder: Path) -> tuple[float, float]:
    """Median and 99th percentile of the time for a write of 4 KiB and its fdatasync on the disk of `folder`."""
    took = []
    path = folder / "probe"
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            file.write(bytes(BYTES))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - began) * 1000)
    path.unlink()
    return statistics.median(took), high(took)
