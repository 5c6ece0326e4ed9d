"""The epoch file of a deposed master is replaced by its successor's, as if an operator had restored the wrong file.

Invariant: this happens only if the two logs diverge below the end of the deposed master's log, and after the broker has left
the SyncStateSet. The broker must refuse to start on such a store."""

from __future__ import annotations

import random

from epochfile.binding import Binding, Seal
from epochfile.file import DEFAULT_NAME
from simulation.checkers.damagedstores import FOREIGN_EPOCHS
from simulation.cluster.looks import BrokerLook, broker_on
from simulation.cluster.machines import Machines
from simulation.faults.fault import Fault
from simulation.kernel.node import Node

FIRST_MS = (15_000, 60_000)
AGAIN_MS = 3_000
PATIENCE_MS = 25_000


class ForeignEpochFile(Fault):
    """An independent fault with its own random generator, so that it changes no other fault of a seed."""

    name = "foreign epoch file"

    def __init__(self, machines: Machines, *, on: bool) -> None:
        super().__init__(machines)
        self.random = random.Random(f"{machines.world.seed}/foreign epochs")
        self.due_ms = self.random.randint(*FIRST_MS) if on else None
        self.deposed: Node | None = None
        self.until_ms = 0

    def next_step(self) -> None:
        now_ms, master = self.world.now_ms, self.machines.master()
        if self.deposed is not None:
            self.go_on(self.deposed, master)
        elif self.due_ms is not None and now_ms >= self.due_ms and master is not None:
            self.due_ms = now_ms + AGAIN_MS
            if self.machines.can_lose(master) is not None:
                self.machines.cut_off(master, self.machines.client)  # the client's sends become its tail
                self.deposed, self.until_ms = master, now_ms + PATIENCE_MS

    def go_on(self, deposed: Node, master: Node | None) -> None:
        old, new = broker_on(deposed), broker_on(master) if master is not None else None
        if old is None or self.world.now_ms > self.until_ms:
            self.deposed = None
        elif new is not None and master is not None and master is not deposed and part(old, new):
            broker_id, foreign = self.machines.can_lose(deposed), master.disk.content(DEFAULT_NAME)
            self.deposed = self.due_ms = None
            if broker_id is not None:
                self.machines.kill(deposed)
                self.machines.losing[deposed.name] = broker_id, lambda: self.restore(deposed, foreign)

    def restore(self, node: Node, foreign: bytes | None) -> None:
        if foreign is not None:
            node.disk.put(DEFAULT_NAME, foreign)
            self.machines.damaged.where[node.name] = FOREIGN_EPOCHS
            self.count()

    def heal(self) -> None:
        self.deposed = self.due_ms = None


def part(old: BrokerLook, new: BrokerLook) -> bool:
    """Whether `new` assigns bytes of the log of `old` to other epochs."""
    bound = Binding(Seal(entry) for entry in old.history)
    return bound.parted(new.history, old.store.min_offset(), old.store.max_offset()) is not None
