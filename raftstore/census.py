"""What a read of a Raft-mode broker's log has seen so far.

Invariant: of each queue the messages that were counted are without a gap; one that is not the next of its queue is not counted,
and is damage. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from dledger.storage.inspection import Inspection
from messagestore.record import QueueFacts, counts_in_queue

OLD_LOG = "commitlog"
"""The folder of what the broker stored before it ran in Raft mode."""


@dataclass(slots=True)
class Census:
    """`found` is the DLedger log's; damage of what stands before it is told there too."""

    found: Inspection
    file_bytes: int = 0
    """Of each file of the log."""
    begin: int = 0
    """Where its first file begins."""
    messages: int = 0
    first_time: int = 0
    last_time: int = 0
    """Store times of the first and the last message, ms; 0 without any."""
    queues: dict[tuple[bytes, int], int] = field(default_factory=dict)
    """(topic, queue id) -> the queue offset behind the last."""

    @property
    def damage(self) -> str:
        """Where and what, in one line; empty for none."""
        found = self.found
        if not found.damage:
            return ""
        place = found.place if found.place.startswith(OLD_LOG) else f"{found.name}/{found.place}"
        return f"{place}: {found.damage}"

    def count(self, facts: QueueFacts, what: str, place: str) -> bool:
        """Whether the message is the next of its queue; `what` and `place` name it for people."""
        if counts_in_queue(facts.sys_flag):
            queue = facts.topic, facts.queue_id
            due = self.queues.get(queue, facts.queue_offset if self.begin else 0)
            if facts.queue_offset != due:
                name = f"{facts.topic.decode('utf-8', 'replace')}/{facts.queue_id}"
                why = f"{what} has queue offset {facts.queue_offset} of {name}, where {due} is due"
                self.found.damaged(place, why)
                return False
            self.queues[queue] = due + 1
        self.messages += 1
        self.first_time = self.first_time or facts.store_timestamp
        self.last_time = facts.store_timestamp
        return True
