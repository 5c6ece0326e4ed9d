"""Draws the links that a network partition cuts, and computes the service that must remain while they are cut.

Invariant: a cut is a pair (from, to) of process names. Bytes do not arrive in that direction; the other direction is not
affected. CLIENT means every process outside the cluster.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

CLIENT = "client"
NAMESRV = "namesrv"

HOLD_MS_SHORT = 500, 6_000
HOLD_MS_LONG = 12_000, 24_000
"""HOLD_MS_SHORT is below, and HOLD_MS_LONG above, the 10 s of silence after which controllers consider a broker dead."""
ROUNDS = 2, 5
OPEN_MS = 50, 1_500
ELECTION_MS_MAX = 15_000
SHRINK_MS_MAX = 20_000
"""15 s without a catch-up and up to 5 s to be removed."""

Cuts = frozenset[tuple[str, str]]


class Shape(StrEnum):
    """The two sides of a cut."""

    MASTER_ALONE = "master from all"
    MASTER_FROM_CONTROLLERS = "master from controllers"
    MASTER_WITH_CONTROLLER = "master and a controller from the rest"
    MASTER_WITH_SLAVE = "master, a slave and a controller from the rest"
    MASTER_MUTE = "nothing that the master says arrives"
    MASTER_DEAF = "nothing reaches the master"
    SLAVE_ALONE = "slave from all"
    SLAVE_FROM_MASTER = "slave from master"
    SLAVE_MUTE = "nothing that a slave sends to the master arrives"
    LEADER_ALONE = "leading controller from all"
    LEADER_FROM_BROKERS = "leading controller from brokers"


WITHIN = frozenset(
    {Shape.MASTER_FROM_CONTROLLERS, Shape.SLAVE_FROM_MASTER, Shape.SLAVE_MUTE, Shape.LEADER_FROM_BROKERS}
)
"""Shapes that do not affect clients. In the other shapes clients may be cut off, on the side of the rest."""


OF_CONTROLLERS = frozenset(
    {
        Shape.MASTER_FROM_CONTROLLERS,
        Shape.MASTER_WITH_CONTROLLER,
        Shape.LEADER_ALONE,
        Shape.LEADER_FROM_BROKERS,
    }
)
"""Shapes that need controllers."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of processes when the partition begins. In a cluster without controllers there is no leading controller."""

    master: str
    slaves: list[str]
    leader: str | None
    followers: list[str]

    @property
    def brokers(self) -> list[str]:
        return [self.master, *self.slaves]

    @property
    def controllers(self) -> list[str]:
        return [self.leader, *self.followers] if self.leader is not None else []

    @property
    def everyone(self) -> list[str]:
        return [NAMESRV, *self.controllers, *self.brokers]


@dataclass(frozen=True, slots=True)
class NetworkPartition:
    """`description` is a readable line. The links are cut `rounds` times for `hold_ms`, with `open_ms` in between. When the
    partition heals, connections that were cut are reset with `reset`; otherwise their bytes are delivered. `serving_ms_max` is
    how long the set may be without an acknowledging master during the partition. It is None if no two members of the set can
    serve, or not for long."""

    shape: Shape
    description: str
    cuts: Cuts
    hold_ms: int
    rounds: int
    open_ms: int
    reset: bool
    serving_ms_max: int | None


def shapes(chance: random.Random, *, controllers: bool = True) -> Iterator[Shape]:
    """An endless sequence of shapes: all shapes in some order, then all in another order, and so on. Without `controllers`,
    only shapes that need none."""
    among = [shape for shape in Shape if controllers or shape not in OF_CONTROLLERS]
    while True:
        yield from chance.sample(among, len(among))


def draw(shape: Shape, roles: Roles, chance: random.Random) -> NetworkPartition:
    """A partition of that shape: its participants, duration and end."""
    side, others = _sides(shape, roles, chance)
    if shape not in WITHIN and chance.random() < 0.5:
        others = [*others, CLIENT]
    cuts: Cuts = frozenset()
    if shape is not Shape.MASTER_DEAF:
        cuts |= between(side, others)
    if shape not in (Shape.MASTER_MUTE, Shape.SLAVE_MUTE):
        cuts |= between(others, side)
    rounds, hold_ms = 1, chance.randint(*chance.choice([HOLD_MS_SHORT, HOLD_MS_LONG, HOLD_MS_LONG]))
    owed_ms = serving_ms_max(roles, cuts)
    if chance.random() < 0.2:
        rounds, hold_ms, owed_ms = chance.randint(*ROUNDS), chance.randint(*HOLD_MS_SHORT), None
    open_ms = chance.randint(*OPEN_MS)
    reset = chance.random() < 0.5
    description = f"{shape}: {', '.join(side)} | {', '.join(others)}; {hold_ms / 1000:.1f} s"
    if rounds > 1:
        description = f"{description}, {rounds} times, {open_ms / 1000:.1f} s apart"
    if reset:
        description += ", then reset"
    return NetworkPartition(shape, description, cuts, hold_ms, rounds, open_ms, reset, owed_ms)


def _sides(shape: Shape, roles: Roles, chance: random.Random) -> tuple[list[str], list[str]]:
    """The processes on the two sides."""
    slave = chance.choice(roles.slaves)
    controller = [chance.choice(roles.controllers)] if roles.controllers else []
    match shape:
        case Shape.MASTER_FROM_CONTROLLERS:
            return [roles.master], roles.controllers
        case Shape.SLAVE_FROM_MASTER | Shape.SLAVE_MUTE:
            return [slave], [roles.master]
        case Shape.LEADER_FROM_BROKERS:
            assert roles.leader is not None, "there are no controllers"
            return [roles.leader], roles.brokers
        case Shape.MASTER_ALONE | Shape.MASTER_MUTE | Shape.MASTER_DEAF:
            side = [roles.master]
        case Shape.MASTER_WITH_CONTROLLER:
            side = [roles.master, *controller]
        case Shape.MASTER_WITH_SLAVE:
            side = [roles.master, slave, *controller]
        case Shape.SLAVE_ALONE:
            side = [slave]
        case Shape.LEADER_ALONE:
            assert roles.leader is not None, "there are no controllers"
            side = [roles.leader]
    return side, [name for name in roles.everyone if name not in side]


def between(sources: Iterable[str], targets: Iterable[str]) -> Cuts:
    """Every link from one of `sources` to one of `targets`."""
    others = list(targets)
    return frozenset((source, target) for source in sources for target in others)


def serving_ms_max(roles: Roles, cuts: Cuts) -> int | None:
    """How long the set may be without an acknowledging master under these cuts.

    The set must have such a master if two of its members reach each other, the name server, the client and a majority of
    controllers that reach each other. If the master is one of two such members, it removes unreachable slaves; otherwise
    another master is elected. Without controllers, a majority of the members must reach each other. None if there are no such
    members.
    """

    def meet(names: Iterable[str]) -> bool:
        pairs = combinations(names, 2)
        return not any((one, other) in cuts or (other, one) in cuts for one, other in pairs)

    if not roles.controllers:
        majorities = combinations(roles.brokers, len(roles.brokers) // 2 + 1)
        served = any(meet([*each, CLIENT]) and meet([*each, NAMESRV]) for each in majorities)
        return ELECTION_MS_MAX if served else None
    majority = len(roles.controllers) // 2 + 1
    quorums = [names for names in combinations(roles.controllers, majority) if meet(names)]
    placed = [
        pair
        for pair in combinations(roles.brokers, 2)
        for quorum in quorums
        if meet([*pair, CLIENT]) and meet([*pair, NAMESRV]) and all(meet([*pair, name]) for name in quorum)
    ]
    if not placed:
        return None
    return SHRINK_MS_MAX if any(roles.master in pair for pair in placed) else ELECTION_MS_MAX
