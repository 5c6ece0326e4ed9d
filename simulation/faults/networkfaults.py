"""Faults of the network.

Invariant: these faults affect only the network, so healing the network ends them."""

from __future__ import annotations

from collections.abc import Callable

from simulation.cluster.machines import Machines
from simulation.faults.fault import Fault, Moment
from simulation.kernel.node import Node


class BetweenTwo(Fault):
    """Applies the fault `does` to two hosts, drawn from all hosts."""

    def __init__(self, machines: Machines, name: str, does: Callable[[str, str], None]) -> None:
        super().__init__(machines, name)
        self.does = does

    def strike(self, now: Moment) -> bool:
        one, other = self.random.sample(self.machines.everyone, 2)
        self.does(one.host, other.host)
        return True


class Isolate(Fault):
    """Cuts `victim`, or any host if there is no victim, off from all hosts, or from all but one."""

    def __init__(self, machines: Machines, name: str, victim: Callable[[Moment], Node | None]) -> None:
        super().__init__(machines, name)
        self.victim = victim

    def strike(self, now: Moment) -> bool:
        everyone = self.machines.everyone
        node = self.victim(now) or self.random.choice(everyone)
        self.machines.cut_off(node, self.random.choice(everyone) if self.random.random() < 0.5 else node)
        return True


class MasterWithItsClient(Fault):
    """The master and its client are cut off from all others."""

    name = "master with its client"

    def strike(self, now: Moment) -> bool:
        self.machines.cut_off(now.master, self.machines.client)
        return True
