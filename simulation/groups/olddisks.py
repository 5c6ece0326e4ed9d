"""A Raft-mode broker's disk is set back to an earlier image. All members die, and that broker comes back first, with the
members that are missing entries that it had acknowledged.

Invariant: all other members have kept a newer start number of that broker than the image has. No other disk is lost before the
set is whole again, and no disk is set back while a disk is full."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulation.groups.faults import GroupFaults
from simulation.kernel.images import Image, image_of, restore
from simulation.kernel.node import Node
from simulation.kernel.world import World
from simulation.raft.olddisks import starts_kept

FIRST_MS = (2_000, 8_000)
AGE_MS = (6_000, 12_000)
AHEAD_MS = (500, 1_000, 1_500)
ALONE_MS = (3_000, 6_000)
SET_BACK = "disk set back"


@dataclass(frozen=True, slots=True)
class Kept:
    """An image of the disk of `node`, the start number in it, and how often the disk was emptied before."""

    node: Node
    image: Image
    number: int
    wipes: int


class OldDisks:
    """The images of one set, with a separate random generator."""

    def __init__(
        self,
        world: World,
        nodes: Sequence[Node],
        faults: GroupFaults,
        *,
        leader: Callable[[], Node | None],
        is_whole: Callable[[], bool],
    ) -> None:
        """`is_whole()` says whether all members serve and hold all that was committed."""
        self.world = world
        self.nodes = list(nodes)
        self.faults = faults
        self.random = random.Random(f"{world.seed}/old disks")
        self.leader = leader
        self.is_whole = is_whole
        self.due_ms: float = world.now_ms + self.random.randint(*FIRST_MS)
        self.kept: Kept | None = None
        self.holds: list[Node] = []
        """The members of the bare majority that commits without the rest."""

    def number(self, node: Node, of: Node) -> int:
        return starts_kept(node, f"n{self.nodes.index(node)}", f"n{self.nodes.index(of)}")

    def next_step(self) -> None:
        if self.world.now_ms < self.due_ms:
            return
        kept = self.kept
        if kept is None:
            self.take(self.random.choice(self.nodes))
        elif not self.holds:
            self.cut(kept)
        else:
            self.strike(kept)

    def take(self, node: Node) -> None:
        if node.running and self.random.random() < 0.3:
            self.faults.end(node)
        number = self.number(node, node)
        self.kept = Kept(node, image_of(node.disk), number, node.disk.wipes) if number else None
        self.due_ms = self.world.now_ms + self.random.randint(*AGE_MS)

    def cut(self, kept: Kept) -> None:
        """For a moment, a bare majority that includes this broker commits without the rest."""
        leader = self.leader()
        fit = self.is_whole() and self.faults.may_lose_disk and kept.node.disk.wipes == kept.wipes
        if leader is None or not fit:
            self.due_ms = self.world.now_ms + 500
            return
        self.world.network.heal()
        self.holds = self.majority(kept.node, leader)
        for node in self.holds:
            for other in self.nodes:
                if other not in self.holds:
                    self.world.network.cut(node.host, other.host)
        self.due_ms = self.world.now_ms + self.random.choice(AHEAD_MS)

    def majority(self, node: Node, leader: Node) -> list[Node]:
        rest = [each for each in self.nodes if each not in (node, leader)]
        first = [node] if node is leader else [node, leader]
        return [*first, *rest][: len(self.nodes) // 2 + 1]

    def strike(self, kept: Kept) -> None:
        holds, self.kept, self.holds = self.holds, None, []
        self.due_ms = self.world.now_ms + self.random.randint(*FIRST_MS)
        if not self.faults.may_lose_disk:
            return
        power_cut = self.random.random() < 0.5
        for node in self.nodes:
            self.faults.end(node, power_cut=power_cut)
            away_ms = self.random.randint(*ALONE_MS) if node in holds else self.random.randint(0, 300)
            self.faults.restart_at_ms[node.name] = self.world.now_ms + away_ms
        self.world.network.heal()
        if all(self.number(each, kept.node) > kept.number for each in self.nodes if each is not kept.node):
            restore(kept.node.disk, kept.image)
            self.faults.loses_disk(kept.node)
            self.faults.restart_at_ms[kept.node.name] = self.world.now_ms
            self.faults.done[SET_BACK] += 1

    def heal(self) -> None:
        self.due_ms = float("inf")
