"""Checks the offset up to which members report half messages (of transactions) as done.

E6 the committed log shows that each half below that offset has ended. So any later master can read this in the log, whatever
its table says, and never has to search for a commit that no record names

Invariant: this module reads only tables and the check's own copy of the log. It decodes records as clients do, and uses
nothing that brokers derive from records."""

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
    """The check of one set."""

    committed: CommittedLog
    done: set[int] = field(default_factory=set)
    """Queue offsets of the halves that are done according to the log."""
    read: int = 0
    """How many records that name halves were read."""
    past: int = 0
    """All halves below this offset are done."""

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
