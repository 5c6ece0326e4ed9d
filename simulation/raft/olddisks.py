"""A member's disk is set back to an earlier image. The member comes back first, with members that are missing entries which it
had acknowledged, while the members that hold these entries are away.

Invariant: after the image was taken, all members have run without a fault until each has received and stored a newer start
number of that member. Everything that was committed is on other disks."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

from simulation.kernel.images import Image, image_of, restore
from simulation.kernel.node import Node
from simulation.raft.stories import Cast, StoriesWorld, begun, cut_between

FIRST_MS = (1_500, 3_000)
AGE_MS = (300, 2_000)
HEARD_MS = 4_600
"""An image may be of a folder in use. After this time the member has drawn and sent a new number, and the others have stored
it (dledger.node.starts)."""
AWAY_MS = 4_500


class OldDiskStage(StoriesWorld, Protocol):
    """What a world must offer, besides StoriesWorld, so that disks can be set back."""

    wiped: set[str]
    healed_at_ms: dict[str, int]


@dataclass(frozen=True, slots=True)
class Kept:
    """An image of the disk of `node`."""

    node: Node
    image: Image
    wipes: int


class OldDisks:
    """The images in the world of one seed, if the seed `plays` this fault."""

    def __init__(self, raft: OldDiskStage, seed: int, *, plays: bool) -> None:
        self.raft = raft
        self.random = random.Random(f"{seed}/old disks")
        self.plays = plays
        self.next_ms: float = self.random.randint(*FIRST_MS)
        self.kept: Kept | None = None
        self.count = 0

    def kinds(self, kinds: list[str]) -> list[str]:
        """The kinds of fault without those that lose a disk, because a lost disk has no image."""
        if not self.plays:
            return kinds
        return [kind for kind in kinds if not kind.startswith("empt")] or ["kill"]

    def turn(self) -> None:
        """Take an image, or set a disk back to one."""
        if not self.plays or self.raft.world.now_ms < self.next_ms:
            return
        kept, self.kept = self.kept, None
        if kept is None:
            node = self.random.choice(self.raft.nodes)
            if node.running and self.random.random() < 0.3:
                self.raft.crash(node, power_cut=False)
            if self.raft.votes(node) or not node.running:
                drawn = starts_kept(node, node.name, node.name)
                self.kept = Kept(node, image_of(node.disk), node.disk.wipes) if drawn else None
            self.next_ms = self.raft.world.now_ms + self.random.randint(*AGE_MS)
        else:
            self.next_ms = float("inf")
            self.set_back(kept)
            self.next_ms = self.raft.world.now_ms + self.random.randint(*FIRST_MS)

    def set_back(self, kept: Kept) -> None:
        raft, node = self.raft, kept.node
        cast = begun(raft)
        if cast is None or node.disk.wipes != kept.wipes or not raft.may_empty([node]):
            return
        raft.play(HEARD_MS)
        cast = begun(raft)
        if cast is None or not raft.votes(node):
            return
        near, far = self.parts(cast, node)
        cut_between(raft, [node, *near], far)
        raft.play(self.random.choice((60, 200, 400)))
        power_cut = self.random.random() < 0.5
        for each in raft.nodes:
            raft.crash(each, power_cut=power_cut, away_ms=AWAY_MS if each in near else 100)
        restore(node.disk, kept.image)
        raft.group.check.emptied(node.name)
        raft.wiped.add(node.name)
        raft.healed_at_ms[node.name] = raft.world.now_ms
        raft.world.network.heal()
        self.count += 1
        raft.play(self.random.choice((150, 400, 1_500)))
        if self.random.random() < 0.5:
            raft.crash(node, power_cut=self.random.random() < 0.5, away_ms=1)
        raft.play(AWAY_MS)

    def parts(self, cast: Cast, node: Node) -> tuple[list[Node], list[Node]]:
        """The members that make a majority with the member whose disk is set back, a leader among them, and the other
        members."""
        others = [each for each in self.raft.nodes if each not in (node, cast.leader)]
        self.random.shuffle(others)
        if cast.leader is not node:
            others.insert(0, cast.leader)
        kept = len(self.raft.nodes) // 2
        return others[:kept], others[kept:]


def starts_kept(node: Node, self_id: str, member: str) -> int:
    """The start number of `member` on the disk of member `self_id`, which runs on `node`; 0 if there is none."""
    data = node.disk.content(f"dledger-{self_id}/starts") or b""
    key = "own" if self_id == member else f"of.{member}"
    rows = dict(line.split("=", 1) for line in data.decode().splitlines())
    return int(rows.get(key, "0:0").split(":")[0])
