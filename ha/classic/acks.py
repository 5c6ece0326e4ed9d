"""Log ends of the slaves of a pair's master.

Invariant: a counted offset stays counted, because a slave has held it. A slave that came without a log gets the log from the
start of a file on, and is missing everything below. A slave that reconnects above this start may be the same slave. So neither
counts for a waiting send that ends at or below this start. Only a connected slave that has reported its end is reachable.
Pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class Holding:
    """A slave's log. Data below `begins` may be missing in it."""

    begins: int
    end: int


class PairAcks:
    """Acks of the connected slaves, by connection; offsets are bytes of the log."""

    def __init__(self) -> None:
        self._holdings: dict[Hashable, Holding] = {}
        self._newest_begin = 0  # the highest start among slaves without a log
        self._counted_end = 0

    def __contains__(self, slave: Hashable) -> bool:
        """Whether `slave` has reported its end."""
        return slave in self._holdings

    def came(self, slave: Hashable, requested: int, start: int) -> None:
        """Note a slave whose first report is `requested`, 0 if it has no log. The slave gets the log from `start` on."""
        if requested == 0:
            self._newest_begin = max(self._newest_begin, start)
        begins = self._newest_begin if start >= self._newest_begin else 0
        self._holdings[slave] = Holding(begins, requested)

    def reported(self, slave: Hashable, end: int) -> None:
        """Note that `slave` holds the log up to `end`."""
        self._holdings[slave].end = end

    def gone(self, slave: Hashable) -> None:
        """Note that the connection of `slave` has ended; harmless if `slave` never reported."""
        self._holdings.pop(slave, None)

    def held_end(self, waiting_end: int) -> int:
        """The offset up to which at least one slave has held the log. `waiting_end` is the end of the first waiting send."""
        ends = [held.end for held in self._holdings.values() if held.begins < waiting_end]
        self._counted_end = max([self._counted_end, *ends])
        return self._counted_end

    def in_step(self, log_end: int, gap_max: int) -> list[Hashable]:
        """Slaves that are less than `gap_max` bytes behind."""
        return [slave for slave, held in self._holdings.items() if log_end - held.end < gap_max]
