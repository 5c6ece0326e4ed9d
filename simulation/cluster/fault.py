"""One kind of fault in one run: how often seeds have it, what it does, how it goes on and how it ends.

Invariant: no kind knows another; what they share stands in the machines."""

from __future__ import annotations

from dataclasses import dataclass

from simulation.cluster.machines import Machines
from simulation.kernel.node import Node


class NotNow(Exception):
    """The fault needs what is not there at the moment."""


@dataclass(frozen=True)
class Moment:
    """Whom a fault may strike: a broker and a controller drawn for it, and who leads."""

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
    """Whatever it has set in motion is in the object."""

    name: str
    chance = 0.5
    """That a seed has it."""

    def __init__(self, machines: Machines, name: str = "") -> None:
        """`name` is needed where one class does for several kinds."""
        self.name = name or self.name
        self.machines = machines
        self.world = machines.world
        self.network = machines.world.network
        self.random = machines.random

    def strike(self, now: Moment) -> bool:
        """It happens, or begins to. Whether it counts at once; if not, `count` is called when it has happened. Raises
        NotNow."""
        raise NotImplementedError

    def count(self) -> None:
        self.machines.done[self.name] += 1

    def next_step(self) -> None:
        """Often called: what it has set in motion goes on. Raises Violation."""

    def holds_back(self, node: Node) -> bool:
        """Whether this node, which is down, must stay so for now."""
        return False

    def heal(self) -> None:
        """What has not happened yet will not."""
