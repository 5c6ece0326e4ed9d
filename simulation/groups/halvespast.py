"""The offset up to which members report the queue of half messages as done.

E6  the committed log says of each half below that offset that it is done: any later master, whatever its table, reads that
    there, and does not look for a commit that no record names

Invariant: reads tables and the check's own copy of the log, whose records it reads as clients do, and uses nothing that brokers
make of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.tables.consumeroffsets import TRANSACTIONS_GROUP
from messagestore.systemtopics import HALF_TOPIC, OP_HALF_TOPIC
from mqclient.message import decode_messages
from simulation.groups.committed import CommittedLog
from simulation.groups.members import Look
from simulation.kernel.violation import Violation


@dataclass
class HalvesPast:
    """Of one set."""

    committed: CommittedLog
    done: set[int] = field(default_factory=set)
    """Queue offsets of the halves that the log names as done."""
    read: int = 0
    """How many of the records that name them were read."""
    past: int = 0
    """All below this offset are done."""

    def look(self, look: Look) -> None:
        """Raises Violation."""
        kept = look.app.tables.offsets.find(TRANSACTIONS_GROUP, HALF_TOPIC, 0) or 0
        if kept <= self.past:
            return
        self._read_done()
        while self.past in self.done:
            self.past += 1
        if kept > self.past:
            what = f"{look.name} reports the halves below {kept} as done, and no record names {self.past}"
            raise Violation("E6", what)

    def _read_done(self) -> None:
        naming = self.committed.queues.get((OP_HALF_TOPIC, 0), [])
        for place, _ in naming[self.read :]:
            for message in decode_messages(self.committed.records[place][1]):
                self.done |= {int(part) for part in bytes(message.body).split(b",") if part.isdigit()}
        self.read = len(naming)
