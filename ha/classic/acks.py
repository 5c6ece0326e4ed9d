"""What the slaves of a pair's master hold of its log.

Invariant: `held_end` never falls, for what one slave has held was not only here; but a slave is in reach only while it is
connected, and has said where it is. Pure."""

from __future__ import annotations

from collections.abc import Hashable


class PairAcks:
    """Of the slaves that are connected, by their connection; offsets are bytes of the log."""

    def __init__(self) -> None:
        self._ends: dict[Hashable, int] = {}
        self.held_end = 0

    def __contains__(self, slave: Hashable) -> bool:
        """Whether it has said where it is."""
        return slave in self._ends

    def reported(self, slave: Hashable, end: int) -> bool:
        """It holds the log up to `end`; whether one slave holds more now than any did before."""
        self._ends[slave] = end
        grown = end > self.held_end
        self.held_end = max(self.held_end, end)
        return grown

    def gone(self, slave: Hashable) -> None:
        """Its connection has ended; harmless when it said nothing."""
        self._ends.pop(slave, None)

    def in_step(self, log_end: int, gap_max: int) -> list[Hashable]:
        """Those that are less than `gap_max` bytes behind."""
        return [slave for slave, end in self._ends.items() if log_end - end < gap_max]
