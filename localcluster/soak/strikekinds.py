"""The kinds of faults, and their order.

Invariant: every kind comes before one comes twice."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum


class Kind(StrEnum):
    """The fault, and its target."""

    KILL_MASTER = "kill -9 master"
    KILL_SLAVE = "kill -9 slave"
    TERM_MASTER = "SIGTERM master"
    TERM_SLAVE = "SIGTERM slave"
    PAUSE_MASTER = "SIGSTOP master"
    PAUSE_SLAVE = "SIGSTOP slave"
    ELECT = "electMaster"
    PARTITION = "partition"
    KILL_LEADER = "kill -9 leading controller"
    RESTART_CONTROLLER = "restart of a controller"


OF_CONTROLLERS = frozenset({Kind.KILL_LEADER, Kind.RESTART_CONTROLLER})
"""These need controllers."""


def kinds_for(*, controllers: bool) -> tuple[Kind, ...]:
    """All possible kinds."""
    return tuple(kind for kind in Kind if controllers or kind not in OF_CONTROLLERS)


def kinds(chance: random.Random, of: Sequence[Kind]) -> Iterator[Kind]:
    """Kinds without end: all of them in some order, then all in another one, and so on."""
    while True:
        yield from chance.sample(list(of), len(of))
