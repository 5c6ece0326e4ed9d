"""What became of a member's snapshots since it started, and which it has.

Invariant: a snapshot is counted once it is durable; one that could not be written is not. Pure."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from dledger.raft.entries import NO_INDEX
from mqruntime.histogram import Histogram

LATENCY_BOUNDS_MS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4)


class Origin(StrEnum):
    """Where a snapshot comes from."""

    MADE = "made"
    INSTALLED = "installed"
    """Another member made it, and sent it."""


class SnapshotCounts:
    """Of one member."""

    def __init__(self) -> None:
        self.written: Counter[Origin] = Counter(dict.fromkeys(Origin, 0))
        self.latency_ms = Histogram(LATENCY_BOUNDS_MS)
        """Until one was durable, from when it was to be written."""
        self.last_index = NO_INDEX
        """Of the newest one, which may be of an earlier process, the last entry, ..."""
        self.last_bytes = 0
        """... and its size in the file; 0 without any."""

    def has(self, index: int, size: int) -> None:
        """This one is the newest."""
        self.last_index, self.last_bytes = index, size

    def wrote(self, origin: Origin, index: int, size: int, seconds: float) -> None:
        self.written[origin] += 1
        self.latency_ms.observe(seconds * 1000)
        self.has(index, size)
