"""Events of a broker that its features listen for.

Invariant: listeners are called at once, in the order in which they were added. The code of the role and the log raises the
events and knows no feature that listens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, ParamSpec

from broker.role.actions import Grant
from broker.role.membership import ReplicaRole
from remoting.peer import Peer

P = ParamSpec("P")


class Listeners(Generic[P]):
    """The listeners of one event."""

    def __init__(self) -> None:
        self._all: tuple[Callable[P, None], ...] = ()

    def add(self, listener: Callable[P, None]) -> None:
        self._all += (listener,)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._all:
            listener(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class RoleTaken:
    """A role began, or continues under another epoch."""

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
    """The log is about to become the log of a master."""
    role_taken: Listeners[[RoleTaken]] = field(default_factory=Listeners)
    role_settled: Listeners[[]] = field(default_factory=Listeners)
    """Raised after `role_taken`, once the tables know the role. Now other servers may be notified."""
    role_announced: Listeners[[]] = field(default_factory=Listeners)
    """Another role will be taken, or the mastership has ended without a known successor. Requests wait for the next role."""
    master_moved: Listeners[[str, int]] = field(default_factory=Listeners)
    """The master of this epoch has another address. Arguments: address, masterEpoch."""
    mastership_left: Listeners[[bool]] = field(default_factory=Listeners)
    """Messages are no longer accepted, stored or acknowledged. The argument is True if this broker stops."""
    transfer_began: Listeners[[int]] = field(default_factory=Listeners)
    """In Raft mode, a leadership transfer began. The argument is the longest time that it takes, in ms."""
    transfer_failed: Listeners[[]] = field(default_factory=Listeners)
    topic_unknown: Listeners[[]] = field(default_factory=Listeners)
    """The log of this slave holds a topic that its tables do not have."""
    swept: Listeners[[int]] = field(default_factory=Listeners)
    """Raised several times a second. The argument is the time in monotonic ms."""
    disconnected: Listeners[[Peer]] = field(default_factory=Listeners)
    """A connection to a port of this broker has ended."""
