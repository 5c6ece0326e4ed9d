"""Planted bugs of queue locks, and of the offsets at which ordered readers continue."""

from __future__ import annotations

from collections.abc import Iterable

from broker.tables import queuelocks
from broker.tables.consumeroffsets import ConsumerOffsets
from broker.tables.queuelocks import Lock, Queue, RebalanceLocks
from remoting.bodies.tables import QueueLock, QueueLockTable
from simulation.mutants.cluster.bugs import bug


@bug("locks-die-with-their-master", RebalanceLocks, "adopt", plays=("ordered readers",))
def locks_die_with_their_master(self: RebalanceLocks, table: QueueLockTable) -> bool:
    """As upstream: no slave knows the holder of a queue."""
    return False


@bug("locks-die-with-their-master", RebalanceLocks, "apply", plays=("ordered readers",))
def locks_die_with_their_master_2(
    self: RebalanceLocks, held: Iterable[QueueLock], gone: Iterable[QueueLock]
) -> bool:
    """The second part of the bug: slaves do not get changes of locks either."""
    return False


@bug("locked-before-others-know", RebalanceLocks, "agreed", plays=("ordered readers",))
def locked_before_others_know(
    self: RebalanceLocks, group: str, queues: Iterable[Queue], client_id: str
) -> bool:
    """A lock is confirmed to a client while only the master knows it."""
    return True


@bug("leases-go-on-under-the-next-master", RebalanceLocks, "led")
def leases_go_on_under_the_next_master(self: RebalanceLocks) -> None:
    """A lease counts from the moment when a slave was notified of the holder, so later renewals are forgotten."""


@bug("locks-for-ever", queuelocks, "_is_over", plays=("ordered readers",))
def locks_for_ever(lock: Lock, now_ms: int) -> bool:
    """A client that fell silent keeps its queues."""
    return False


@bug("restarts-forget-locks", RebalanceLocks, "decode", plays=("facts",))
def restarts_forget_locks(self: RebalanceLocks, data: bytes) -> None:
    """Holders are not read from disk."""


commit = ConsumerOffsets.commit


@bug("commits-run-ahead", ConsumerOffsets, "commit", plays=("handlers",))
def commits_run_ahead(self: ConsumerOffsets, group: str, topic: str, queue_id: int, offset: int) -> bool:
    """The next reader of a queue begins behind a message that nobody handled."""
    return commit(self, group, topic, queue_id, offset + 1)
