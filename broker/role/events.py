"""Moments in a broker's life that its features register for.

Invariant: listeners are called at once, in the order in which they were added. The role and the log know the moments, and no
feature that listens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, ParamSpec

from broker.role.actions import Grant
from broker.role.membership import ReplicaRole
from remoting.peer import Peer

P = ParamSpec("P")


class Listeners(Generic[P]):
    """Those of one moment."""

    def __init__(self) -> None:
        self._all: tuple[Callable[P, None], ...] = ()

    def add(self, listener: Callable[P, None]) -> None:
        self._all += (listener,)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._all:
            listener(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class RoleTaken:
    """A role begins, or continues under another epoch."""

    former: ReplicaRole
    role: ReplicaRole
    grant: Grant

    @property
    def leads(self) -> bool:
        return self.role is ReplicaRole.MASTER

    @property
    def became_master(self) -> bool:
        return self.leads and self.former is not ReplicaRole.MASTER


@dataclass(frozen=True, slots=True)
class BrokerEvents:
    confirmed: Listeners[[]] = field(default_factory=Listeners)
    """The confirm offset, or the end that may be acknowledged, has moved."""
    promotion_began: Listeners[[]] = field(default_factory=Listeners)
    """The log is about to become a master's."""
    role_taken: Listeners[[RoleTaken]] = field(default_factory=Listeners)
    role_settled: Listeners[[]] = field(default_factory=Listeners)
    """After `role_taken`: the tables have taken the role, too, and other servers may be notified."""
    role_announced: Listeners[[]] = field(default_factory=Listeners)
    """Another role will be taken, or the mastership has ended and no successor is known yet: requests wait for it."""
    master_moved: Listeners[[str, int]] = field(default_factory=Listeners)
    """The master of this epoch has another address: address, masterEpoch."""
    mastership_left: Listeners[[bool]] = field(default_factory=Listeners)
    """Nothing is accepted, stored or acknowledged any more; True: because this broker stops."""
    transfer_began: Listeners[[int]] = field(default_factory=Listeners)
    """In Raft mode: a leadership transfer, for so many ms at most."""
    transfer_failed: Listeners[[]] = field(default_factory=Listeners)
    topic_unknown: Listeners[[]] = field(default_factory=Listeners)
    """The log of this slave holds a topic that its tables are missing."""
    swept: Listeners[[int]] = field(default_factory=Listeners)
    """Several times a second: monotonic ms."""
    disconnected: Listeners[[Peer]] = field(default_factory=Listeners)
    """A connection to a port of this broker has ended."""
