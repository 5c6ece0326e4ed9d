"""Faults at the moment when an administrator gets an answer.

Invariant: the links that were cut are healed once the master at their end is dead."""

from __future__ import annotations

from simulation.cluster.machines import Machines
from simulation.faults.fault import Fault, Moment
from simulation.kernel.node import Node
from simulation.workloads.facts import Fact

PATIENCE_MS = 2_500
"""The time in which an administrator sends a request. It is shorter than the time after which slaves that are cut off leave
the set."""


class DeathWithAnAnswer(Fault):
    """The master is cut off from its slaves, and dies when an administrator gets a success, or soon after."""

    name = "death with an answer"

    def __init__(self, machines: Machines) -> None:
        super().__init__(machines)
        self.victim: Node | None = None
        self.until_ms = 0
        machines.facts.on_answered = self.answered

    def strike(self, now: Moment) -> bool:
        if self.victim is None:
            self.victim, self.until_ms = now.master, self.world.now_ms + PATIENCE_MS
            for slave in self.machines.slaves(self.victim):
                self.network.cut(self.victim.host, slave.host)
        return False

    def answered(self, fact: Fact) -> None:
        if self.victim is not None:
            self.die(self.victim)

    def next_step(self) -> None:
        if self.victim is not None and self.world.now_ms >= self.until_ms:
            self.die(self.victim)

    def die(self, victim: Node) -> None:
        self.victim = None
        self.machines.kill(victim)
        for slave in self.machines.slaves(victim):
            self.network.heal(victim.host, slave.host)
        self.count()

    def heal(self) -> None:
        self.victim = None
