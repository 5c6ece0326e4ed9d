"""A broker's disk is set back to an earlier image of itself, taken while the store was open or after its broker was killed or
stopped. Perhaps all brokers die then, and that broker comes back first.

Invariant: no more is lost than the contract tolerates. A disk is not set back while another store or memory is lost, or, under
contract B, while no other broker is electable. So acknowledged data is not lost, and the set has a master again without an
operator."""

from __future__ import annotations

import random
from dataclasses import dataclass

from simulation.cluster.looks import id_on_disk
from simulation.cluster.machines import Machines
from simulation.faults.fault import Fault
from simulation.kernel.images import Image, image_of, restore
from simulation.kernel.node import Node

FIRST_MS = (4_000, 12_000)
AGE_MS = (6_000, 20_000)
"""The age of an image. An image of an open store must be older than the start number that controllers got last
(broker.role.startnumber)."""
BETWEEN_MS = (5_000, 15_000)
NOTICED_MS = 1_500
"""After this time the checks know which brokers controllers may elect."""
ALONE_MS = (3_000, 9_000)


@dataclass(frozen=True)
class Kept:
    """An image of the disk of `node`, taken while the broker with that id used the disk."""

    node: Node
    image: Image
    broker_id: int
    wipes: int


class OldDisks(Fault):
    """An independent fault with its own random generator."""

    name = "disk set back"

    def __init__(self, machines: Machines) -> None:
        super().__init__(machines)
        self.random = random.Random(f"{machines.world.seed}/old disks")
        self.due_ms: int | None = self.random.randint(*FIRST_MS)
        self.kept: Kept | None = None
        self.down: Kept | None = None

    def next_step(self) -> None:
        if self.due_ms is None or self.world.now_ms < self.due_ms:
            return
        if self.down is not None:
            self.set_back(self.down)
            self.kept = self.down = None
            self.due_ms = self.world.now_ms + self.random.randint(*BETWEEN_MS)
        elif self.kept is not None:
            self.strike_down(self.kept)
        else:
            self.take(self.random.choice(self.machines.brokers))

    def take(self, node: Node) -> None:
        """Take an image of an open store, or of a store that was stopped or killed."""
        broker_id = id_on_disk(node)
        self.due_ms = self.world.now_ms + self.random.randint(*AGE_MS)
        if broker_id is None or not self.nothing_else_lost(node):
            return
        if node.running and self.random.random() < 0.4:
            self.machines.kill(node)
        self.kept = Kept(node, image_of(node.disk), broker_id, node.disk.wipes)

    def strike_down(self, kept: Kept) -> None:
        """Kill the broker, perhaps with all others. Its disk is set back after NOTICED_MS, when all controllers have noticed
        its death."""
        if not (kept.node.running and self.may_happen(kept)):
            self.kept = None
            return
        everybody = self.random.random() < 0.5
        victims = self.machines.brokers if everybody else [kept.node]
        for node in victims:
            self.machines.kill(node)
        self.down = kept
        self.due_ms = self.world.now_ms + NOTICED_MS

    def holds_back(self, node: Node) -> bool:
        return self.down is not None and node in self.machines.brokers and not node.running

    def set_back(self, kept: Kept) -> None:
        if kept.node.running or not self.may_happen(kept):
            return
        restore(kept.node.disk, kept.image)
        self.machines.check.forgetful.add(kept.node.name)
        self.count()
        for node in self.machines.brokers:
            alone_ms = 0 if node is kept.node else self.random.randint(*ALONE_MS)
            self.machines.restart_at_ms[node.name] = self.world.now_ms + alone_ms

    def may_happen(self, kept: Kept) -> bool:
        others = self.machines.check.electable - {kept.broker_id}
        same = id_on_disk(kept.node) == kept.broker_id and kept.node.disk.wipes == kept.wipes
        return same and bool(others) and self.nothing_else_lost(kept.node)

    def nothing_else_lost(self, node: Node) -> bool:
        """Whether no other loss counts on this broker."""
        on = self.machines
        damaged = on.losing or on.damaged.flipped or on.damaged.where or on.check.forgetful or on.check.forked
        short = any(look.may_miss for look in on.broker_looks())
        return not (damaged or short or on.lost_ids & on.check.electable or node.disk.stalled)

    def heal(self) -> None:
        self.due_ms = self.kept = self.down = None
