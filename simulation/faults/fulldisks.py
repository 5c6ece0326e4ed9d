"""Disks of servers that are full for a while.

Invariant: a server that serves does not end because of a full disk. It rejects, waits, and continues when there is room. A
broker that starts after a graceful stop, on an unchanged store, does not end either. Any other start may fail on a full disk,
and is repeated."""

from __future__ import annotations

import random

from broker.resync.storeaside import FILE as STORE_ASIDE
from broker.role.memorymark import FILE as MEMORY_MARK
from messagestore.store.brokerstore import ABORT_FILE, was_closed
from mqruntime.diskfull import DISK_FULL
from simulation.cluster.looks import serves
from simulation.cluster.machines import Machines
from simulation.faults.fault import Fault
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation

FIRST_MS = (20_000, 60_000)
BETWEEN_MS = (5_000, 30_000)
LASTS_MS = (500, 5_000, 20_000)
ROOM_BYTES = (0, 300, 20_000)
RESTART_MS = 1_000
FILLS_MEANWHILE = 0.3


class FullDisk(Fault):
    """An independent fault with its own random generator, so that it changes no other fault of a seed."""

    name = "full disk"

    def __init__(self, machines: Machines, *, on: bool) -> None:
        super().__init__(machines)
        self.random = random.Random(f"{machines.world.seed}/full disks")
        self.nodes = machines.servers
        self.due_ms = self.random.randint(*FIRST_MS) if on else None
        self.meanwhile = random.Random(f"{machines.world.seed}/disks that fill meanwhile")
        self.down: dict[str, tuple[int, int, bool]] = {}
        """Node name -> the last process that was seen to have ended, how many syncs had failed by then, and whether the end
        was graceful."""
        self.until_ms: dict[str, int] = {}
        self.serving: dict[str, tuple[int, int]] = {}
        """Node name -> the last process that was seen to serve, and how many syncs had failed by then."""
        self.ended: dict[str, int] = {}
        """Node name -> the last process that was seen to have ended on a full disk."""

    def next_step(self) -> None:
        """Fill a disk, or make room on other disks. Raises Violation."""
        now_ms = self.world.now_ms
        for node in self.nodes:
            if now_ms >= self.until_ms.get(node.name, now_ms + 1):
                self.make_room(node)
            self.look_at(node)
        for node in self.machines.brokers:
            self.fill_meanwhile(node)
        if self.due_ms is not None and now_ms >= self.due_ms:
            self.due_ms = now_ms + self.random.randint(*BETWEEN_MS)
            node = self.random.choice(self.nodes)
            self.fill(node, self.random)

    def fill_meanwhile(self, node: Node) -> None:
        """Fill the disk of a broker that is down, so that it is full when the broker comes back."""
        if not node.running and self.down.get(node.name, (0,))[0] != node.incarnation:
            holds = node.disk.content
            in_good_order = (
                was_closed(holds(ABORT_FILE))
                and holds(MEMORY_MARK) is not None
                and holds(STORE_ASIDE) is None
            )
            self.down[node.name] = node.incarnation, node.disk.failures["sync"], in_good_order
            if self.due_ms is not None and self.meanwhile.random() < FILLS_MEANWHILE:
                self.fill(node, self.meanwhile)

    def fill(self, node: Node, chance: random.Random) -> None:
        node.disk.capacity_bytes = node.disk.used_bytes() + chance.choice(ROOM_BYTES)
        self.until_ms[node.name] = self.world.now_ms + chance.choice(LASTS_MS)
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
                raise Violation("V2", f"{node.name} served, and ended on a full disk: {node.failure}")
            whole = node.name not in self.machines.damaged.queues
            if whole and self.down.get(node.name) == (node.incarnation - 1, syncs_failed, True):
                raise Violation(
                    "V2", f"{node.name} stopped gracefully, and does not start on a full disk: {node.failure}"
                )

    def make_room(self, node: Node) -> None:
        node.disk.capacity_bytes = None
        self.until_ms.pop(node.name, None)

    def heal(self) -> None:
        """Make room on all disks, for good."""
        self.due_ms = None
        for node in self.nodes:
            self.make_room(node)


def wants_room(failure: BaseException | None) -> bool:
    """Whether the process ended because the disk was full."""
    cause = getattr(failure, "cause", failure)
    return isinstance(cause, OSError) and cause.errno in DISK_FULL
