"""Planted bugs of consumer groups whose offsets administrators reset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from broker.tables.consumeroffsets import ConsumerOffsets
from broker.tables.offsetlimits import Key, OffsetLimits
from broker.tables.offsetresets import OffsetResets
from broker.tables.tables import Tables
from remoting.bodies.offsets import ConsumerOffsetWrapper, OffsetResetTable
from simulation.mutants.cluster.bugs import BUGS

bug = BUGS.playing("filters")


@bug("moves-die-with-their-master", OffsetResets, "adopt")
def moves_die_with_their_master(self: OffsetResets, table: OffsetResetTable | None) -> dict[Key, int] | None:
    """As upstream: no slave knows the resets."""
    return None


@bug("moves-die-with-their-master", OffsetResets, "apply")
def moves_die_with_their_master_2(
    self: OffsetResets, changed: Mapping[Key, int], gone: Iterable[Key]
) -> dict[Key, int]:
    """The second part of the bug: slaves do not get changed resets either."""
    return {}


@bug("notified-moves-are-over", OffsetResets, "pulled")
def notified_moves_are_over(
    self: OffsetResets, group: str, topic: str, queue_id: int, offset: int
) -> int | None:
    """As upstream: a consumer's commit counts after the consumer was notified of a reset."""
    reset = self._resets.pop((group, topic, queue_id), None)
    return None if reset is None else reset.offset


@bug("restarts-forget-moves", ConsumerOffsets, "decode")
def restarts_forget_moves(self: ConsumerOffsets, data: bytes) -> None:
    """Resets are not read from disk."""
    self._wrapper = ConsumerOffsetWrapper.decode(data)


@bug("groups-stay-beyond-a-lost-end", Tables, "on_log_tail_lost")
async def groups_stay_beyond_a_lost_end(self: Tables, log: Any, *, certain: bool) -> None:
    """As upstream: a group that had read lost messages skips the messages that get their offsets."""


@bug("limits-die-with-their-master", OffsetLimits, "adopt")
def limits_die_with_their_master(self: OffsetLimits, table: OffsetResetTable | None) -> dict[Key, int]:
    """The master after the next, and a restarted master, know no limits."""
    return {}


@bug("limits-die-with-their-master", OffsetLimits, "apply")
def limits_die_with_their_master_2(
    self: OffsetLimits, changed: Mapping[Key, int], gone: Iterable[Key]
) -> dict[Key, int]:
    """The second part of the bug: slaves do not get changed limits either."""
    return {}


@bug("commits-beyond-a-lost-end", OffsetLimits, "forbids")
def commits_beyond_a_lost_end(self: OffsetLimits, key: Key, offset: int) -> bool:
    """Offsets that a consumer had read in a lost log count in the present log."""
    return False
