"""Planted bugs of requests that a former master forwards to its successor."""

from __future__ import annotations

from collections.abc import Iterable

from broker.neighbours.naps import Naps
from broker.tables.consumeroffsets import ConsumerOffsets
from broker.tables.queuelocks import Queue, RebalanceLocks
from remoting.bodies.offsets import ConsumerOffsetWrapper
from remoting.peer import Peer
from simulation.mutants.cluster.bugs import BUGS

unlock, commit = RebalanceLocks.unlock, ConsumerOffsets.commit

bug = BUGS.playing("committers")


@bug("stale-unlock-forwarded", RebalanceLocks, "unlock")
def stale_unlock_forwarded(
    self: RebalanceLocks, group: str, queues: Iterable[Queue], client_id: str, *, is_passed_on: bool = False
) -> None:
    """A forwarded unlock releases a lock that the holder has requested again since."""
    unlock(self, group, queues, client_id)


@bug("stale-unlock-forwarded", Naps, "is_late")
@bug("passed-on-after-a-nap", Naps, "is_late")
def stale_unlock_forwarded_2(self: Naps, peer: Peer) -> bool:
    """The second part of the bug: requests that waited in the socket of a paused master are forwarded to its successor."""
    return False


@bug("stale-commit-forwarded", ConsumerOffsets, "commit")
def stale_commit_forwarded(
    self: ConsumerOffsets, group: str, topic: str, queue_id: int, offset: int, *, is_passed_on: bool = False
) -> bool:
    """A forwarded commit counts like any other."""
    return commit(self, group, topic, queue_id, offset)


@bug("offsets-die-with-their-master", ConsumerOffsets, "adopt")
def offsets_die_with_their_master(
    self: ConsumerOffsets, wrapper: ConsumerOffsetWrapper, own_rests_on: int | None = 0
) -> bool:
    """No slave knows the offsets of groups."""
    return False
