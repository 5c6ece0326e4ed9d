"""The own offsets of a pair's master (its progress in delayed messages and transactions) that slaves may copy.

Invariant: slaves get only offsets that belong to records that a slave holds; the master's own table waits for no slave. So a
slave that becomes master repeats the deliveries and checks whose records are missing in its log. Slaves get no offsets before a
slave holds the log that the master had when it began. Another slave may still be missing a part: `rests_on`, the log end to
which the offsets belong, shows it that it may not use them yet. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Table(Protocol[T]):
    """An offset table of a master, and the copy that slaves get."""

    def as_they_are(self) -> T: ...

    def give(self, given: T | None, rests_on: int) -> None: ...

    def give_all(self) -> None: ...


class OffsetsReached(NamedTuple, Generic[T]):
    """Offsets that slaves may get once they hold the log up to `log_end`."""

    offsets: T
    log_end: int


class CopiedOffsets(Generic[T]):
    """The offsets that slaves get from one table. `followed()` is the log end that every possible next master has."""

    def __init__(self, table: Table[T], followed: Callable[[], int]) -> None:
        self._table = table
        self._followed = followed
        self._reached: OffsetsReached[T] | None = None  # waits for slaves to hold its `log_end`
        self._moved_end = 0  # log end to which the table's last change belongs
        self._moved = False  # since `_reached`

    def role_taken(self, log_end: int | None) -> None:
        """Start as master whose log ends at `log_end`, or as slave (None) whose table is a copy."""
        self._reached = None
        self._moved = log_end is not None
        if log_end is None:
            self._table.give_all()
        else:
            self._moved_end = log_end
            self._table.give(None, 0)
            self.acknowledged()

    def moved(self, log_end: int) -> None:
        """Called when the table has changed. It belongs to the log up to `log_end` now."""
        self._moved_end = max(self._moved_end, log_end)
        self._moved = True

    def acknowledged(self) -> None:
        """Give slaves the offsets whose log they hold by now."""
        followed_end = self._followed() if self._moved or self._reached is not None else 0
        if self._reached is not None and self._reached.log_end <= followed_end:
            self._table.give(*self._reached)
            self._reached = None
        if self._moved and self._reached is None:
            now = OffsetsReached(self._table.as_they_are(), self._moved_end)
            self._moved = False
            if now.log_end <= followed_end:
                self._table.give(*now)
            else:
                self._reached = now
