"""All brokers of a set die, and the master comes back first. Acknowledged data that only the master holds must not be lost.

Invariant: the slaves stay down until the master leads again or its time is over, so no other broker is elected meanwhile."""

from __future__ import annotations

import random

from simulation.cluster.machines import Machines
from simulation.faults.fault import Fault
from simulation.kernel.node import Node

FIRST_MS = (10_000, 25_000)
BETWEEN_MS = (15_000, 30_000)
BEHIND_MS = (300, 1_500)
"""How long slaves are cut off before the deaths. It is shorter than the time after which they would leave the set."""
AWAY_MS = (1, 500, 2_000)
ALONE_MS = 15_000


class MasterFirst(Fault):
    """An independent fault with its own random generator, so that it changes no other fault of a seed."""

    name = "master comes back first"

    def __init__(self, machines: Machines) -> None:
        super().__init__(machines)
        self.random = random.Random(f"{machines.world.seed}/master first")
        self.due_ms: int | None = self.random.randint(*FIRST_MS)
        self.victim: Node | None = None
        self.dies_at_ms: int | None = None
        self.alone_until_ms = 0

    def next_step(self) -> None:
        now_ms = self.world.now_ms
        if self.victim is None:
            if self.due_ms is not None and now_ms >= self.due_ms:
                self.cut_slaves_off(self.machines.master())
        elif self.dies_at_ms is not None:
            if now_ms >= self.dies_at_ms:
                self.all_die(self.victim)
        elif now_ms >= self.alone_until_ms or (self.victim.running and self.machines.master() is self.victim):
            self.rest()

    def cut_slaves_off(self, master: Node | None) -> None:
        if master is None or not all(node.running for node in self.machines.brokers) or self.machines.losing:
            return
        self.victim = master
        for slave in self.machines.slaves(master):
            self.network.cut(master.host, slave.host)
        self.dies_at_ms = self.world.now_ms + self.random.randint(*BEHIND_MS)

    def all_die(self, master: Node) -> None:
        """All brokers die: the master by a kill or a graceful stop, its slaves by a kill."""
        self.dies_at_ms = None
        self.alone_until_ms = self.world.now_ms + ALONE_MS
        for slave in self.machines.slaves(master):
            self.machines.kill(slave)
            self.network.heal(master.host, slave.host)
        if master.running and master.app is not None:
            if self.random.random() < 0.5:
                master.leave()
            else:
                master.kill()
            self.machines.restart_at_ms[master.name] = self.world.now_ms + self.random.choice(AWAY_MS)
            self.count()

    def rest(self) -> None:
        self.victim = None
        if self.due_ms is not None:
            self.due_ms = self.world.now_ms + self.random.randint(*BETWEEN_MS)

    def holds_back(self, node: Node) -> bool:
        """Whether the node is a slave whose master is not back yet."""
        waits = self.victim is not None and self.dies_at_ms is None
        return waits and node in self.machines.brokers and node is not self.victim

    def heal(self) -> None:
        self.due_ms = self.dies_at_ms = self.victim = None
