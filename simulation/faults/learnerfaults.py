"""Faults of a learner, a replica that never enters the SyncStateSet. No promise depends on a learner, so it may lose everything
at any time.

Invariant: neither acknowledged data nor the election of a master ever depends on a learner."""

from __future__ import annotations

import random

from simulation.cluster.machines import Machines
from simulation.faults.fault import Fault
from simulation.kernel.node import Node

FIRST_MS = (8_000, 20_000)
BETWEEN_MS = (8_000, 25_000)
ALONE_MS = (3_000, 9_000)


class LearnerTrouble(Fault):
    """A learner is killed, cut off from a broker or loses its store, or all other brokers die. An independent fault with its
    own random generator."""

    name = "learner in trouble"

    def __init__(self, machines: Machines) -> None:
        super().__init__(machines)
        self.random = random.Random(f"{machines.world.seed}/learner")
        self.due_ms: int | None = self.random.randint(*FIRST_MS)
        self.alone_until_ms = 0

    def next_step(self) -> None:
        if self.due_ms is None or self.world.now_ms < self.due_ms:
            return
        self.due_ms = self.world.now_ms + self.random.randint(*BETWEEN_MS)
        (learner,) = self.machines.learners
        match self.random.randrange(4):
            case 0:
                self.machines.kill(learner)
            case 1:
                self.network.cut(learner.host, self.random.choice(self.machines.brokers).host)
            case 2:
                self.machines.kill(learner)
                learner.disk.wipe()
            case _:
                for node in self.machines.brokers:
                    self.machines.kill(node)
                self.alone_until_ms = self.world.now_ms + self.random.randint(*ALONE_MS)
        self.count()

    def holds_back(self, node: Node) -> bool:
        return node in self.machines.brokers and self.world.now_ms < self.alone_until_ms

    def heal(self) -> None:
        self.due_ms, self.alone_until_ms = None, 0
