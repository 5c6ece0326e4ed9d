"""What a master tells the controllers of its SyncStateSet, one proposal at a time.

Invariant: a proposal is unsettled from the moment it may have reached a controller until a set with a newer epoch is
known, or a controller refused it. A proposal whose fate is unknown is first looked up (1004) and, while the
controllers' set is still the old one, sent again unchanged: it may yet be waiting in some controller's queue, and only
a verdict on the same set, given in the controllers' one order of commands, comes after that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from remoting.codes import ResponseCode

ALTER_RETRY_MS = 500
NEVER_MS = 1 << 62

REFUSALS = {
    ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
    ResponseCode.CONTROLLER_INVALID_MASTER,
    ResponseCode.CONTROLLER_INVALID_REPLICAS,
    ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
}
"""The set did not change and will not by this proposal. After 2001 and 2013 it has changed before: read it."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The wanted members, for the SyncStateSet of `sync_state_set_epoch` under `master_epoch`."""

    members: frozenset[int]
    sync_state_set_epoch: int
    master_epoch: int


class Base(Protocol):
    """The set that a proposal starts from; a Grant is one."""

    @property
    def master_epoch(self) -> int: ...
    @property
    def sync_state_set(self) -> frozenset[int]: ...
    @property
    def sync_state_set_epoch(self) -> int: ...


class SyncStateSetReport:
    """The wanted set and the proposal under way, of one mastership."""

    def __init__(self) -> None:
        self.wanted: frozenset[int] | None = None
        self._proposal: Proposal | None = None
        self._may_linger = False  # an earlier sending of the proposal has no known end
        self._due_ms = 0

    @property
    def unsettled(self) -> bool:
        return self._proposal is not None

    def want(self, members: frozenset[int] | None) -> None:
        """The set that the log's replicas justify now; None when the present one is right."""
        self.wanted = members

    def due_ms(self) -> int:
        return self._due_ms if self._proposal is not None or self.wanted is not None else NEVER_MS

    def next(self, base: Base, now_ms: int) -> tuple[Proposal, bool] | None:
        """The proposal to send now and whether it was sent before."""
        if now_ms < self._due_ms:
            return None
        if self._proposal is not None:
            return self._proposal, True
        if self.wanted is None or self.wanted == base.sync_state_set:
            self.wanted = None
            return None
        self._proposal = Proposal(self.wanted, base.sync_state_set_epoch, base.master_epoch)
        return self._proposal, False

    def withdraw(self, now_ms: int) -> None:
        """The proposal given last was not sent and is not wanted any more."""
        self._due_ms = now_ms + ALTER_RETRY_MS
        self.wanted = None
        self._proposal = None

    def not_replied(self, now_ms: int, *, sent: bool) -> bool:
        """No answer to the proposal; True when it certainly changed nothing."""
        self._due_ms = now_ms + ALTER_RETRY_MS
        if sent:
            self._may_linger = True
        return self._drop_unless_lingering()

    def refused(self, code: int, now_ms: int) -> bool:
        """A controller answered without success; True when the proposal is over for certain."""
        self._due_ms = now_ms + ALTER_RETRY_MS
        if code in REFUSALS:
            self._may_linger = (
                False  # commands are judged in one order: what was sent before was judged before
            )
        elif code != ResponseCode.CONTROLLER_NOT_LEADER:
            self._may_linger = True
        return self._drop_unless_lingering()

    def _drop_unless_lingering(self) -> bool:
        if self._may_linger:
            return False
        self._proposal = None
        return True

    def read(self, master_epoch: int, base: Base) -> None:
        """The controllers were asked after an unknown outcome; `base` is the newest set known."""
        if master_epoch == base.master_epoch:
            self._due_ms = 0  # the old set is still theirs: send the same again at once

    def settled(self, members: frozenset[int]) -> None:
        """A set of a newer epoch is known: every proposal for an older one is fenced off."""
        self._proposal = None
        self._may_linger = False
        self._due_ms = 0
        if self.wanted == members:
            self.wanted = None
