"""Disks of servers that are full for a while.

Invariant: a server that serves does not end for it: it refuses, waits, and goes on when there is room. One that starts may
end; it is started again."""

from __future__ import annotations

import random

from mqruntime.diskfull import DISK_FULL
from simulation.cluster.fault import Fault
from simulation.cluster.looks import serves
from simulation.cluster.machines import Machines
from simulation.cluster.violation import Violation
from simulation.kernel.node import Node

FIRST_MS = (20_000, 60_000)
BETWEEN_MS = (5_000, 30_000)
LASTS_MS = (500, 5_000, 20_000)
ROOM_BYTES = (0, 300, 20_000)
RESTART_MS = 1_000


class FullDisk(Fault):
    """Comes of itself, from a generator of its own, so that it changes no other fault of a seed."""

    name = "full disk"

    def __init__(self, machines: Machines) -> None:
        super().__init__(machines)
        self.random = random.Random(f"{machines.world.seed}/full disks")
        self.nodes = machines.servers
        self.due_ms = self.random.randint(*FIRST_MS) if self.random.random() < self.chance else None
        self.until_ms: dict[str, int] = {}
        self.serving: dict[str, tuple[int, int]] = {}
        """Node name -> its last process that was seen to serve, and how many syncs had failed by then."""
        self.ended: dict[str, int] = {}
        """Node name -> its last process that was seen to have ended on a full disk."""

    def next_step(self) -> None:
        """Fills a disk, makes room on others. Raises Violation."""
        now_ms = self.world.now_ms
        for node in self.nodes:
            if now_ms >= self.until_ms.get(node.name, now_ms + 1):
                self.make_room(node)
            self.look_at(node)
        if self.due_ms is not None and now_ms >= self.due_ms:
            self.due_ms = now_ms + self.random.randint(*BETWEEN_MS)
            node = self.random.choice(self.nodes)
            node.disk.capacity_bytes = node.disk.used_bytes() + self.random.choice(ROOM_BYTES)
            self.until_ms[node.name] = now_ms + self.random.choice(LASTS_MS)
            self.count()

    def look_at(self, node: Node) -> None:
        syncs_failed = node.disk.failures["sync"]
        if serves(node):
            if self.serving.get(node.name, (0, 0))[0] != node.incarnation:
                self.serving[node.name] = node.incarnation, syncs_failed
        elif not node.running and wants_room(node.failure) and self.ended.get(node.name) != node.incarnation:
            self.ended[node.name] = node.incarnation
            self.machines.restart_at_ms[node.name] = self.world.now_ms + RESTART_MS
            if self.serving.get(node.name) == (node.incarnation, syncs_failed):
                raise Violation("V2", f"{node.name} served and ended on a full disk: {node.failure}")

    def make_room(self, node: Node) -> None:
        node.disk.capacity_bytes = None
        self.until_ms.pop(node.name, None)

    def heal(self) -> None:
        """There is room everywhere, and there will be."""
        self.due_ms = None
        for node in self.nodes:
            self.make_room(node)


def wants_room(failure: BaseException | None) -> bool:
    """Whether a full disk ended a process."""
    cause = getattr(failure, "cause", failure)
    return isinstance(cause, OSError) and cause.errno in DISK_FULL
