"""Bugs of groups that administrators move, planted as those of simulation.cluster.bugs are."""

from __future__ import annotations

from broker.tables.consumeroffsets import ConsumerOffsets
from broker.tables.offsetresets import Key, OffsetResets
from remoting.bodies.offsets import ConsumerOffsetWrapper, OffsetResetTable
from simulation.cluster.bugs import bug


@bug("moves-die-with-their-master", OffsetResets, "adopt")
def knows_nothing(self: OffsetResets, table: OffsetResetTable | None) -> dict[Key, int] | None:
    """As upstream's: no slave knows who was moved."""
    return None


@bug("told-moves-are-over", OffsetResets, "pulled")
def erased(self: OffsetResets, group: str, topic: str, queue_id: int, offset: int) -> int | None:
    """As upstream's: what a consumer commits after it was told counts."""
    reset = self._resets.pop((group, topic, queue_id), None)
    return None if reset is None else reset.offset


@bug("restarts-forget-moves", ConsumerOffsets, "decode")
def offsets_alone(self: ConsumerOffsets, data: bytes) -> None:
    """Moves are not read from disk."""
    self._wrapper = ConsumerOffsetWrapper.decode(data)
