"""Disks of brokers that fail once.

Invariant: a broker that could not sync ends by itself soon after; one that has no room refuses or waits."""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from simulation.cluster.violation import Violation
from simulation.kernel.node import Node
from simulation.kernel.world import World

RESTART_MS = (1, 300, 2000, 6000)
DISK_ERRORS = (
    ("sync", errno.EIO, "commitlog/"), ("sync", errno.ENOSPC, "commitlog/"), ("sync", errno.EIO, ""),
    ("create", errno.ENOSPC, ""), ("reserve", errno.ENOSPC, ""), ("replace", errno.ENOSPC, ""),
)  # fmt: skip
ENDS_MS = 12_000
"""A broker whose log could not be synced has ended within this time, though it may have been paused."""


@dataclass
class FailingDisk:
    """A fault set on a broker's disk."""

    operation: str
    failures: int
    """How many had struck this operation before."""

    ends: bool
    """Whether the broker must end, rather than refuse what it has no room for."""

    incarnation: int
    struck_ms: int | None = None


class DiskErrors:
    """`done` and `restart_at_ms` (node name -> when it comes back) are those of all faults."""

    def __init__(
        self, world: World, chance: random.Random, done: Counter[str], restart_at_ms: dict[str, int]
    ) -> None:
        self.world = world
        self.random = chance
        self.done = done
        self.restart_at_ms = restart_at_ms
        self.failing: dict[str, FailingDisk] = {}
        """By node name."""

    def set(self, node: Node) -> None:
        """The next operation of a kind fails, once."""
        if node.name in self.failing:
            return
        operation, number, where = self.random.choice(DISK_ERRORS)
        node.disk.fail_next(operation, OSError(number, os.strerror(number)), where=where)
        self.failing[node.name] = FailingDisk(
            operation, node.disk.failures[operation], operation == "sync", node.incarnation
        )

    def next_step(self, node: Node) -> None:
        """Once the fault has struck, the broker's process must not outlive it by long. Raises Violation."""
        failing = self.failing.get(node.name)
        if failing is None:
            return
        if failing.struck_ms is None:
            if node.disk.failures[failing.operation] == failing.failures:
                failing.incarnation = node.incarnation
                return
            failing.struck_ms = self.world.now_ms
            self.done["disk error"] += 1
        if not node.running or node.incarnation != failing.incarnation or not failing.ends:
            del self.failing[node.name]
            if not node.running and node.failure is not None:
                self.done["ended by a disk error"] += 1
                self.restart_at_ms[node.name] = self.world.now_ms + self.random.choice(RESTART_MS)
        elif self.world.now_ms - failing.struck_ms > ENDS_MS:
            raise Violation("L6", f"{node.name} still runs {ENDS_MS} ms after its log could not be synced")

    def take_back(self, nodes: Iterable[Node]) -> None:
        """Faults that have not struck will not."""
        for name in list(self.failing):
            if self.failing[name].struck_ms is None:
                del self.failing[name]
        for node in nodes:
            node.disk.mend()
