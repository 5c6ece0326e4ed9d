"""The kinds of faults, and their order.

Invariant: no kind comes twice before every kind has come once."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum


class StrikeKind(StrEnum):
    """A kind of fault, and its target."""

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
"""Kinds that need controllers."""


def kinds_for(*, controllers: bool) -> tuple[StrikeKind, ...]:
    """All possible kinds."""
    return tuple(kind for kind in StrikeKind if controllers or kind not in OF_CONTROLLERS)


def kinds(chance: random.Random, of: Sequence[StrikeKind]) -> Iterator[StrikeKind]:
    """An endless sequence of kinds: all kinds in some order, then all in another order, and so on."""
    while True:
        yield from chance.sample(list(of), len(of))
