"""How far members say that the queue of half messages is done with.

E6  each half below that offset is told done by the log that was decided: any later master, whatever its table, reads there that
    it is, and a commit that nobody told it would not look for

Invariant: reads tables and the check's own copy of the log, whose records it reads as clients do, and nothing of what brokers
make of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.tables.consumeroffsets import TRANSACTIONS_GROUP
from messagestore.systemtopics import HALF_TOPIC, OP_HALF_TOPIC
from mqclient.message import decode_messages
from simulation.cluster.violation import Violation
from simulation.groups.decided import Decided
from simulation.groups.members import Look


@dataclass
class HalvesPast:
    """Of one set."""

    decided: Decided
    told: set[int] = field(default_factory=set)
    """Queue offsets of the halves that the log tells done."""
    read: int = 0
    """Of the records that tell so many were read."""
    past: int = 0
    """Below this offset all are told."""

    def look(self, look: Look) -> None:
        """Raises Violation."""
        kept = look.app.tables.offsets.find(TRANSACTIONS_GROUP, HALF_TOPIC, 0) or 0
        if kept <= self.past:
            return
        self._read_op_records()
        while self.past in self.told:
            self.past += 1
        if kept > self.past:
            what = f"{look.name} is done with the halves below {kept}, and nothing tells that {self.past} is"
            raise Violation("E6", what)

    def _read_op_records(self) -> None:
        tellers = self.decided.queues.get((OP_HALF_TOPIC, 0), [])
        for place, _ in tellers[self.read :]:
            for message in decode_messages(self.decided.records[place][1]):
                self.told |= {int(part) for part in bytes(message.body).split(b",") if part.isdigit()}
        self.read = len(tellers)
