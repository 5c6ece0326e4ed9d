"""Disks that stall or fail once.

Invariant: a broker whose sync failed ends by itself soon after. A broker whose disk has no room rejects sends or waits. In fact
the log loses nothing, because the power stays on. But the broker cannot know that, so it reports that it may be missing data.
If another store is lost too, an operator must decide (simulation.faults.lostforgood)."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from simulation.cluster.machines import Machines
from simulation.faults.fault import Fault, Moment
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation

DISK_ERRORS = (
    ("sync", errno.EIO, "commitlog/"), ("sync", errno.ENOSPC, "commitlog/"), ("sync", errno.EIO, ""),
    ("create", errno.ENOSPC, ""), ("reserve", errno.ENOSPC, ""), ("replace", errno.ENOSPC, ""),
)  # fmt: skip
ENDS_MS = 12_000
"""A broker whose log could not be synced has ended within this time, even if it was paused. A broker that stops gracefully
first passes its clients on to its successor."""
STALLS_MS = (100, 2000)


class DiskStall(Fault):
    name = "disk stall"

    def strike(self, now: Moment) -> bool:
        self.random.choice((now.broker, now.controller)).disk.stall(self.random.choice(STALLS_MS))
        return True


@dataclass
class FailingDisk:
    """A fault set on a broker's disk."""

    operation: str
    failures: int
    """How many faults of this operation had struck before."""

    ends: bool
    """Whether the broker must end. Otherwise it rejects what it has no room for."""

    incarnation: int
    struck_ms: int | None = None


class DiskError(Fault):
    """The next operation of a kind fails, once."""

    name = "disk error"

    def __init__(self, machines: Machines) -> None:
        super().__init__(machines)
        self.failing: dict[str, FailingDisk] = {}
        """By node name."""

    def strike(self, now: Moment) -> bool:
        node = now.broker
        if node.name in self.machines.losing or node.name in self.failing:
            return False
        operation, number, where = self.random.choice(DISK_ERRORS)
        node.disk.fail_next(operation, OSError(number, os.strerror(number)), where=where)
        self.failing[node.name] = FailingDisk(
            operation, node.disk.failures[operation], operation == "sync", node.incarnation
        )
        self.machines.doubtful_disks.add(node.name)
        return False

    def next_step(self) -> None:
        for node in self.machines.brokers:
            if node.name in self.failing:
                self.look_at(node, self.failing[node.name])

    def look_at(self, node: Node, failing: FailingDisk) -> None:
        """Check that the broker's process ends soon after the fault has struck. Raises Violation."""
        if failing.struck_ms is None:
            if node.disk.failures[failing.operation] == failing.failures:
                failing.incarnation = node.incarnation
                return
            failing.struck_ms = self.world.now_ms
            self.count()
        if not node.running or node.incarnation != failing.incarnation or not failing.ends:
            self.forget(node.name)
            if not node.running and node.failure is not None:
                self.machines.done["ended by a disk error"] += 1
                self.machines.back_soon(node)
        elif not node.leaving and self.world.now_ms - failing.struck_ms > ENDS_MS:
            raise Violation("L6", f"{node.name} still runs {ENDS_MS} ms after its log could not be synced")

    def forget(self, name: str) -> None:
        del self.failing[name]
        self.machines.doubtful_disks.discard(name)

    def heal(self) -> None:
        for name in [name for name, failing in self.failing.items() if failing.struck_ms is None]:
            self.forget(name)
        for node in self.machines.brokers:
            node.disk.mend()
