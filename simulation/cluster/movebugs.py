"""Bugs of groups that administrators move, planted as those of simulation.cluster.bugs are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from broker.tables.consumeroffsets import ConsumerOffsets
from broker.tables.offsetlimits import Key, OffsetLimits
from broker.tables.offsetresets import OffsetResets
from broker.tables.tables import Tables
from remoting.bodies.offsets import ConsumerOffsetWrapper, OffsetResetTable
from simulation.cluster.bugs import BUGS

bug = BUGS.playing("filters")


@bug("moves-die-with-their-master", OffsetResets, "adopt")
def knows_nothing(self: OffsetResets, table: OffsetResetTable | None) -> dict[Key, int] | None:
    """As upstream's: no slave knows who was moved."""
    return None


@bug("moves-die-with-their-master", OffsetResets, "apply")
def learns_nothing(self: OffsetResets, changed: Mapping[Key, int], gone: Iterable[Key]) -> dict[Key, int]:
    """The rest of it: nor what changes."""
    return {}


@bug("told-moves-are-over", OffsetResets, "pulled")
def erased(self: OffsetResets, group: str, topic: str, queue_id: int, offset: int) -> int | None:
    """As upstream's: what a consumer commits after it was told counts."""
    reset = self._resets.pop((group, topic, queue_id), None)
    return None if reset is None else reset.offset


@bug("restarts-forget-moves", ConsumerOffsets, "decode")
def offsets_alone(self: ConsumerOffsets, data: bytes) -> None:
    """Moves are not read from disk."""
    self._wrapper = ConsumerOffsetWrapper.decode(data)


@bug("groups-stay-beyond-a-lost-end", Tables, "on_log_tail_lost")
async def as_ever(self: Tables, log: Any, *, certain: bool) -> None:
    """As upstream's: who had read what is lost passes over what takes its place."""


@bug("limits-die-with-their-master", OffsetLimits, "adopt")
def knows_of_no_loss(self: OffsetLimits, table: OffsetResetTable | None) -> dict[Key, int]:
    """The master after the next, and a restart, know of no limits."""
    return {}


@bug("limits-die-with-their-master", OffsetLimits, "apply")
def learns_of_no_loss(self: OffsetLimits, changed: Mapping[Key, int], gone: Iterable[Key]) -> dict[Key, int]:
    """The rest of it: nor what changes."""
    return {}


@bug("commits-beyond-a-lost-end", OffsetLimits, "forbids")
def believed(self: OffsetLimits, key: Key, offset: int) -> bool:
    """What a consumer had read of a log that is gone counts in this one."""
    return False
