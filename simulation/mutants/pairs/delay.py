"""Planted bugs of delayed messages."""

from __future__ import annotations

from broker.tables.delayoffsets import DelayOffsets
from messagestore.store.messagestore import MessageStore
from simulation.mutants.pairs.bugs import bug


@bug("delays-given-at-once", DelayOffsets, "for_slaves", plays=("lost masters",))
def delays_given_at_once(self: DelayOffsets) -> tuple[bytes, int] | None:
    """As upstream: slaves are notified of a delivery that only the master has."""
    return self.encode(), 0


@bug("offsets-written-before-the-log", MessageStore, "synced_to", plays=("lost memory",))
async def offsets_written_before_the_log(self: MessageStore, end: int) -> None:
    """As upstream: each file is written at its own time, even if the log on the same disk is missing the data."""
