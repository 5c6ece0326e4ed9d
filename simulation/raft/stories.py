"""Scripted sequences of faults, called stories, that random faults seldom produce. Each story brings a group to the limit of
one promise, under constant load.

Invariant: a story breaks no more than the group tolerates. The members that it empties are a minority, and killed members
restart."""

from __future__ import annotations

import random
from typing import Protocol

from simulation.kernel.node import Node
from simulation.kernel.world import World
from simulation.raft.group import RaftGroup

AWAY_MS = 4_500


class StoriesWorld(Protocol):
    """The operations on a group that a story may use."""

    world: World
    group: RaftGroup
    nodes: list[Node]
    random: random.Random

    def play(self, ms: int) -> None:
        """Run load without further faults, for at least one step."""
        ...

    def calm(self) -> None:
        """End all faults."""
        ...

    def crash(self, node: Node, *, power_cut: bool, away_ms: int | None = None) -> None: ...

    def isolate(self, node: Node, *, both: bool = True) -> None: ...

    def may_empty(self, nodes: list[Node]) -> bool:
        """Whether these members and the members that have not caught up yet are a minority."""
        ...

    def empty(self, node: Node) -> None:
        """Replace the member's disk, and start it at once."""
        ...

    def votes(self, node: Node) -> bool: ...

    def ambush(self, count: int) -> None:
        """For the next `count` times, a follower that acknowledges gets at once what a former leader had sent to it."""
        ...

    def deliver_late(self, count: int) -> None:
        """Deliver earlier messages again, or for the first time."""
        ...


class Cast:
    """The parts that members play: a leader, just enough followers for a majority with it, and the rest."""

    def __init__(self, raft: StoriesWorld, leader: Node) -> None:
        others = [node for node in raft.nodes if node is not leader]
        raft.random.shuffle(others)
        kept = len(raft.nodes) // 2
        self.leader, self.near, self.far = leader, others[:kept], others[kept:]


def short_majority(raft: StoriesWorld) -> None:
    """A bare majority commits while its leader's disk is slow. Then the leader loses power. All other members of that majority
    but one are away while the rest elect."""
    cast = begun(raft)
    if cast is None:
        return
    cut_between(raft, [cast.leader, *cast.near], cast.far)
    cast.leader.disk.stall(raft.random.choice((0, 300)))
    raft.play(raft.random.randint(30, 200))
    raft.crash(cast.leader, power_cut=True)
    for node in cast.near:
        raft.crash(node, power_cut=raft.random.random() < 0.5, away_ms=AWAY_MS)
    raft.world.network.heal()
    raft.play(3_500)


def emptied_acker(raft: StoriesWorld) -> None:
    """A bare majority commits. One of its members loses its disk, its other members are away, and the rest come back."""
    cast = begun(raft)
    if cast is None or not raft.may_empty(cast.near[:1]):
        return
    cut_between(raft, [cast.leader, *cast.near], cast.far)
    raft.play(300)
    emptied, *away = cast.near
    for node in (cast.leader, *away):
        raft.crash(node, power_cut=False, away_ms=AWAY_MS)
    raft.empty(emptied)
    raft.world.network.heal()
    raft.play(AWAY_MS - 500)


def emptied_under_its_leader(raft: StoriesWorld) -> None:
    """A follower loses its disk and returns to the same leader, to which it has acknowledged and whose disk is slow."""
    cast = begun(raft)
    if cast is None or not raft.may_empty(cast.near[:1]):
        return
    cut_between(raft, [cast.leader, *cast.near], cast.far)
    cast.leader.disk.stall(raft.random.choice((100, 300)))
    raft.play(raft.random.choice((10, 60)))
    raft.empty(cast.near[0])
    raft.play(500)
    raft.world.network.heal()


def emptied_and_caught_up(raft: StoriesWorld) -> None:
    """A leader and some followers commit without the rest. One of them loses its disk and is caught up. As soon as it votes,
    the members that held everything are away."""
    cast = begun(raft)
    if cast is None or not raft.may_empty(cast.near[:1]):
        return
    cut_between(raft, [cast.leader], cast.far)
    raft.play(200)
    emptied, *others = cast.near
    raft.empty(emptied)
    for _ in range(60):
        raft.play(1)
        if raft.votes(emptied):
            break
    for node in (cast.leader, *others):
        raft.crash(node, power_cut=False, away_ms=AWAY_MS)
    raft.world.network.heal()
    raft.play(AWAY_MS - 500)


def emptied_beside_a_stale_leader(raft: StoriesWorld) -> None:
    """A leader is cut off, and another is elected and commits. Followers of the new leader lose their disks and return to the
    old leader."""
    cast = begun(raft)
    if cast is None or not raft.may_empty(cast.near):
        return
    raft.isolate(cast.leader)
    for _ in range(120):
        raft.play(20)
        newer = [node for node in raft.group.active() if node is not cast.leader]
        if newer:
            break
    else:
        return
    raft.play(raft.random.choice((20, 60)))
    followers = [node for node in raft.nodes if node is not cast.leader and node not in newer]
    emptied = followers[: len(raft.nodes) // 2]
    if not raft.may_empty(emptied):
        return
    rest = [node for node in raft.nodes if node is not cast.leader and node not in emptied]
    cut_between(raft, emptied, rest)
    for node in emptied:
        raft.empty(node)
        raft.world.network.heal(node.host, cast.leader.host)
    raft.play(raft.random.choice((300, 2_500)))
    raft.world.network.heal()
    raft.play(2_500)


def deposed_leader(raft: StoriesWorld) -> None:
    """A leader is cut off, one way or both ways, and gets reads while the others elect and commit."""
    cast = begun(raft)
    if cast is None:
        return
    raft.ambush(10)
    raft.isolate(cast.leader, both=raft.random.random() < 0.8)
    raft.play(2_500)
    raft.ambush(0)
    raft.world.network.heal()
    raft.deliver_late(60)
    raft.play(300)


STORIES = {
    "short-majority": short_majority,
    "emptied-acker": emptied_acker,
    "emptied-under-its-leader": emptied_under_its_leader,
    "emptied-and-caught-up": emptied_and_caught_up,
    "emptied-beside-a-stale-leader": emptied_beside_a_stale_leader,
    "deposed-leader": deposed_leader,
}


def begun(raft: StoriesWorld) -> Cast | None:
    """The parts, once all members run and one leads undisturbed; None if that does not happen soon."""
    raft.calm()
    for _ in range(60):
        raft.play(80)
        active = raft.group.active()
        if len(active) == 1 and all(node.running for node in raft.nodes):
            raft.play(100)
            return Cast(raft, active[0])
    return None


def cut_between(raft: StoriesWorld, some: list[Node], others: list[Node]) -> None:
    for node in some:
        for other in others:
            raft.world.network.cut(node.host, other.host)
