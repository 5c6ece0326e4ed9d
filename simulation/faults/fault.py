"""The base of all kinds of faults. A kind says what the fault does, how it continues and how it ends.

Invariant: no kind of fault refers to another kind. State that they share is in Machines."""

from __future__ import annotations

from dataclasses import dataclass

from simulation.cluster.machines import Machines
from simulation.kernel.node import Node


class NotNow(Exception):
    """The fault is impossible at the moment, because something that it needs is missing."""


@dataclass(frozen=True)
class Moment:
    """The possible victims of a fault: a broker and a controller drawn for the fault, and the leaders."""

    broker: Node
    controller: Node
    acting_master: Node | None
    acting_leader: Node | None

    @property
    def master(self) -> Node:
        """Raises NotNow."""
        return needed(self.acting_master)

    @property
    def leader(self) -> Node:
        """The controller that leads. Raises NotNow."""
        return needed(self.acting_leader)


def needed(node: Node | None) -> Node:
    if node is None:
        raise NotNow
    return node


class Fault:
    """A kind of fault in one run. The object has all state of a fault that is under way."""

    name: str
    chance = 0.5
    """The chance that a seed has it."""

    def __init__(self, machines: Machines, name: str = "") -> None:
        """`name` is needed where one class is used for several kinds."""
        self.name = name or self.name
        self.machines = machines
        self.world = machines.world
        self.network = machines.world.network
        self.random = machines.random

    def strike(self, now: Moment) -> bool:
        """Begin the fault. Returns whether it counts at once. If not, `count` is called when it has happened. Raises NotNow."""
        raise NotImplementedError

    def count(self) -> None:
        self.machines.done[self.name] += 1

    def next_step(self) -> None:
        """Continue a fault under way. This is called often. Raises Violation."""

    def holds_back(self, node: Node) -> bool:
        """Whether this node, which is down, must stay down for now."""
        return False

    def heal(self) -> None:
        """Cancel the steps that have not happened yet."""
