"""The offsets of its own that a pair's master lets slaves copy: those of delayed messages, and of its transactions.

Invariant: they rest on what one of its slaves holds, though the master's own table waits for none: one that is put in the
master's place delivers again, and asks again for, what it has no copy of. Nothing is given before that is known of the log that
the master began with. A slave of ours that lags behind the others sees by `rests_on` that it may not take them yet. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Table(Protocol[T]):
    """What masters keep, and slaves get of it."""

    def as_they_are(self) -> T: ...

    def give(self, given: T | None, rests_on: int) -> None: ...

    def give_all(self) -> None: ...


class Reached(NamedTuple, Generic[T]):
    """These offsets count once the log up to `log_end` is followed."""

    offsets: T
    log_end: int


class CopiedOffsets(Generic[T]):
    """`followed()`: up to where whoever takes this master's place has its log."""

    def __init__(self, table: Table[T], followed: Callable[[], int]) -> None:
        self._table = table
        self._followed = followed
        self._reached: Reached[T] | None = None  # and to be followed
        self._moved_end = 0  # what the table's last move rests on
        self._moved = False  # since `_reached`

    def role_taken(self, log_end: int | None) -> None:
        """Of a master whose log ends there; None of a slave, whose own table is a copy."""
        self._reached = None
        self._moved = log_end is not None
        if log_end is None:
            self._table.give_all()
        else:
            self._moved_end = log_end
            self._table.give(None, 0)
            self.acknowledged()

    def moved(self, log_end: int) -> None:
        """The table has, for what ends there."""
        self._moved_end = max(self._moved_end, log_end)
        self._moved = True

    def acknowledged(self) -> None:
        """The table has moved as far as it can now, or slaves hold more."""
        followed_end = self._followed() if self._moved or self._reached is not None else 0
        if self._reached is not None and self._reached.log_end <= followed_end:
            self._table.give(*self._reached)
            self._reached = None
        if self._moved and self._reached is None:
            now = Reached(self._table.as_they_are(), self._moved_end)
            self._moved = False
            if now.log_end <= followed_end:
                self._table.give(*now)
            else:
                self._reached = now
