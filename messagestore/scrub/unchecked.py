"""The ranges of a log whose records have not been checked lately.

Invariant: ranges are disjoint, not empty and in order. Each range begins at a record boundary. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Range(NamedTuple):
    """Offsets [start, end) of the log."""

    start: int
    end: int


class Unchecked:
    """Offsets are physical."""

    def __init__(self) -> None:
        self._ranges: list[Range] = []

    @property
    def ranges(self) -> tuple[Range, ...]:
        return tuple(self._ranges)

    @property
    def size_bytes(self) -> int:
        return sum(end - start for start, end in self._ranges)

    def add(self, start: int, end: int) -> None:
        """Mark [start, end), both record boundaries, as unchecked."""
        kept = [*self.outside(start, end), Range(start, end)]
        self._ranges = sorted(each for each in kept if each.end > each.start)

    def checked(self, start: int, end: int) -> None:
        """Note that the records of [start, end) are intact. An empty range changes nothing, because its `start` may be no
        boundary."""
        if start < end:
            self._ranges = self.outside(start, end)

    def outside(self, start: int, end: int) -> list[Range]:
        """The unchecked ranges below `start` and from `end` on."""
        parts = [
            part
            for low, high in self._ranges
            for part in (Range(low, min(high, start)), Range(max(low, end), high))
        ]
        return [part for part in parts if part.end > part.start]

    def cut(self, offset: int) -> None:
        """Note that the log was cut to `offset`. Bytes that are written there from now on need no check."""
        self._ranges = [Range(low, min(high, offset)) for low, high in self._ranges if low < offset]

    def begin_at(self, offset: int) -> None:
        """Note that the log begins at `offset` now."""
        self._ranges = self.outside(0, offset)

    def first(self, start: int, end: int) -> tuple[int, Range] | None:
        """The first unchecked offset in [start, end), and the unchecked range that holds it. None if all are checked."""
        for each in self._ranges:
            if each.start < end and each.end > start:
                return max(each.start, start), each
        return None
