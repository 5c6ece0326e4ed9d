"""Totals of a scan of a Raft-mode broker's log.

Invariant: the counted messages of each queue have no gap; a message that is not the next of its queue is damage, and
is not counted. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from dledger.storage.inspection import Inspection
from messagestore.record import QueueFacts, counts_in_queue

OLD_LOG = "commitlog"
"""The folder of the plain log, which the broker wrote before Raft mode."""


@dataclass(slots=True)
class Census:
    """The totals. `found` is the inspection of the DLedger log; damage of the plain log before it is reported there too."""

    found: Inspection
    file_bytes: int = 0
    """Size of each file of the log."""
    begin: int = 0
    """Start of the log's first file."""
    messages: int = 0
    first_time: int = 0
    last_time: int = 0
    """Store times of the first and the last message, ms; 0 without a message."""
    queues: dict[tuple[bytes, int], int] = field(default_factory=dict)
    """(topic, queue id) -> the queue offset after the last message."""

    @property
    def damage(self) -> str:
        """The damage and its place, in one line; empty if there is no damage."""
        found = self.found
        if not found.damage:
            return ""
        place = found.place if found.place.startswith(OLD_LOG) else f"{found.name}/{found.place}"
        return f"{place}: {found.damage}"

    def count(self, facts: QueueFacts, what: str, place: str) -> bool:
        """Count the message if it is the next of its queue. `what` and `place` describe the message in a report of damage."""
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
