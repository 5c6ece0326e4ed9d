"""Bugs of delayed messages, planted as those of simulation.pairs.bugs are."""

from __future__ import annotations

from broker.tables.delayoffsets import DelayOffsets
from simulation.pairs.bugs import bug


@bug("delays-given-at-once", DelayOffsets, "for_slaves")
def as_it_is(self: DelayOffsets) -> tuple[bytes, int] | None:
    """As upstream's: slaves are told that a message is delivered which only the master has."""
    return self.encode(), 0
