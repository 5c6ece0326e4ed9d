"""The delay offsets that slaves of a pair's master copy.

Invariant: they rest on what one of its slaves holds, though delivery waits for none: one that is put in the master's place
delivers again what it lacks the copy of. Nothing is given before that is known of the log that the master began with. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.tables.delayoffsets import DelayOffsets
from remoting.bodies.offsets import DelayOffsetWrapper


class Reached(NamedTuple):
    """These offsets count once the log up to `log_end` is followed."""

    offsets: DelayOffsetWrapper
    log_end: int


class CopiedDelays:
    """`followed()`: up to where whoever takes this master's place has its log."""

    def __init__(self, offsets: DelayOffsets, followed: Callable[[], int]) -> None:
        self._offsets = offsets
        self._followed = followed
        self._reached: Reached | None = None  # and to be followed
        self._counted_end = 0  # of the last delivery that is in the table
        self._moved = False  # since `_reached`

    def role_taken(self, log_end: int | None) -> None:
        """Of a master whose log ends there; None of a slave, whose own table is a copy."""
        self._reached = None
        self._moved = log_end is not None
        if log_end is None:
            self._offsets.give_all()
        else:
            self._counted_end = log_end
            self._offsets.give(None)
            self.acknowledged()

    def counted(self, log_end: int) -> None:
        """The table has moved for a delivery that ends there."""
        self._counted_end = max(self._counted_end, log_end)
        self._moved = True

    def acknowledged(self) -> None:
        """The table has moved as far as it can now, or slaves hold more."""
        followed_end = self._followed() if self._moved or self._reached is not None else 0
        if self._reached is not None and self._reached.log_end <= followed_end:
            self._offsets.give(self._reached.offsets)
            self._reached = None
        if self._moved and self._reached is None:
            now = Reached(self._offsets.as_they_are(), self._counted_end)
            self._moved = False
            if now.log_end <= followed_end:
                self._offsets.give(now.offsets)
            else:
                self._reached = now
