"""The part of its own offsets that a pair's master lets slaves copy: of delayed messages and transactions.

Invariant: they rest on records that one of its slaves holds, although the master's own table waits for none. A slave that
becomes master delivers, and checks, again what is missing from its log. Nothing is given before the slaves are known to hold
the log that the master began with. Our slaves that lag behind the others see by `rests_on` that they may not take them yet.
Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Table(Protocol[T]):
    """An offset table of a master, and the copy given to slaves."""

    def as_they_are(self) -> T: ...

    def give(self, given: T | None, rests_on: int) -> None: ...

    def give_all(self) -> None: ...


class OffsetsReached(NamedTuple, Generic[T]):
    """Offsets that may be given once slaves hold the log up to `log_end`."""

    offsets: T
    log_end: int


class CopiedOffsets(Generic[T]):
    """`followed()`: the log end that any possible next master has."""

    def __init__(self, table: Table[T], followed: Callable[[], int]) -> None:
        self._table = table
        self._followed = followed
        self._reached: OffsetsReached[T] | None = None  # and to be followed
        self._moved_end = 0  # log end that the table's last move rests on
        self._moved = False  # since `_reached`

    def role_taken(self, log_end: int | None) -> None:
        """Start as master with a log that ends at `log_end`, or as slave (None), whose table is a copy."""
        self._reached = None
        self._moved = log_end is not None
        if log_end is None:
            self._table.give_all()
        else:
            self._moved_end = log_end
            self._table.give(None, 0)
            self.acknowledged()

    def moved(self, log_end: int) -> None:
        """Note that the table moved; it rests on the log up to `log_end`."""
        self._moved_end = max(self._moved_end, log_end)
        self._moved = True

    def acknowledged(self) -> None:
        """Give the offsets that slaves hold by now."""
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
