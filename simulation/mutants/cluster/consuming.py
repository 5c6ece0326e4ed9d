"""Planted bugs of members of consumer groups."""

from __future__ import annotations

from collections.abc import Sequence

from mqclient import groupmember
from mqclient.groupconsumer import GroupConsumer
from mqclient.groupmember import GroupMember
from mqclient.message import StoredMessage
from mqclient.queuelocks import QueueLocks
from mqclient.queueprogress import QueueProgress
from mqclient.queuepuller import QueuePuller
from mqclient.received import ReceivedMessage
from mqclient.route import MessageQueue
from remoting.allocation import Allocate
from simulation.mutants.cluster.bugs import BUGS

bug = BUGS.playing("group members")


@bug("unfinished-committed", QueueProgress, "committed")
def unfinished_committed(self: QueueProgress) -> int:
    """What a member has read counts as finished, and is skipped when it dies."""
    return self.next_offset


@bug("failed-counts-as-sent-back", GroupConsumer, "_sent_back")
async def failed_counts_as_sent_back(self: GroupConsumer, message: ReceivedMessage, delay_level: int) -> bool:
    """A message that failed is acknowledged, although no broker took it back."""
    return True


@bug("in-order-without-locks", QueuePuller, "is_locked")
def in_order_without_locks(self: QueuePuller) -> bool:
    """Two members read a queue while they do not know of each other."""
    return True


@bug("unlocked-in-hand", GroupConsumer, "_give_up")
async def unlocked_in_hand(self: GroupConsumer, puller: QueuePuller) -> None:
    """A queue is given up while its message is still in the application's hands."""
    await puller.end()
    await self._let_go(puller)


@bug("failed-ones-wait-last", QueueProgress, "give_back")
def failed_ones_wait_last(self: QueueProgress, message: StoredMessage) -> bool:
    """In order, too, a message that failed comes again after the later ones."""
    if self._taken.pop(message.queue_offset, None) is None:
        return False
    self._waiting.append(message)
    return True


@bug("shares-by-own-order", groupmember, "allocated")
def shares_by_own_order(
    allocate: Allocate, client_id: str, consumers: Sequence[str], queues: Sequence[MessageQueue]
) -> list[MessageQueue]:
    """Each member puts itself first, so all read the same queues, and nobody reads the others."""
    return allocate(0, len(consumers), sorted(queues))


@bug("leaves-without-commit", QueuePuller, "commit_in_time")
async def leaves_without_commit(self: QueuePuller) -> None:
    """The last acknowledgements before the end are never committed."""


@bug("heartbeats-only-once", GroupMember, "disconnected")
def heartbeats_only_once(self: GroupMember, address: str) -> None:
    """A broker that forgot a member with its connection does not hear of it again for half a minute."""


@bug("many-in-hand", QueuePuller, "may_be_taken")
def many_in_hand(self: QueuePuller) -> bool:
    """In order, too, the next message is given while the one before it is handled."""
    return self.progress is not None and self.progress.waits and (not self.is_ordered or self.is_locked)


puller_of = GroupConsumer._puller_of


@bug("left-and-come-back", GroupConsumer, "_puller_of")
def left_and_come_back(self: GroupConsumer, queue: MessageQueue) -> QueuePuller:
    """A queue that is given up and comes back at once is read again, while its message is still in the application's hands."""
    leaving, self._leaving = self._leaving, {}
    try:
        return puller_of(self, queue)
    finally:
        self._leaving = leaving


@bug("lost-locks-forgotten", QueueLocks, "tenure")
def lost_locks_forgotten(self: QueueLocks, queue: MessageQueue) -> int:
    """A member that slept reads on where it was, when it gets a queue back that another member has read meanwhile."""
    return 0
