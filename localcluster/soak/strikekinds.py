"""The kinds of faults, and their order.

Invariant: every kind comes before one comes twice."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum


class StrikeKind(StrEnum):
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


OF_CONTROLLERS = frozenset({StrikeKind.KILL_LEADER, StrikeKind.RESTART_CONTROLLER})
"""These need controllers."""


def kinds_for(*, controllers: bool) -> tuple[StrikeKind, ...]:
    """All possible kinds."""
    return tuple(kind for kind in StrikeKind if controllers or kind not in OF_CONTROLLERS)


def kinds(chance: random.Random, of: Sequence[StrikeKind]) -> Iterator[StrikeKind]:
    """Kinds without end: all of them in some order, then all in another one, and so on."""
    while True:
        yield from chance.sample(list(of), len(of))
