"""What the role state machine asks its shell to do, what it is told, and what follows from that for replication.

Values only; `broker.role.membership` says when each of them is right."""

from __future__ import annotations

from dataclasses import dataclass

from broker.role.identity import Identity, TemporaryIdentity
from broker.role.syncstatesetreport import Proposal


@dataclass(frozen=True, slots=True)
class Grant:
    """What a controller said of the set's master: `master_address` is its remoting address."""

    master_epoch: int
    master_id: int
    master_address: str
    sync_state_set: frozenset[int]
    sync_state_set_epoch: int


@dataclass(frozen=True, slots=True)
class SaveTemporary:
    """Write the temporary file durably, then report `saved`."""

    identity: TemporaryIdentity


@dataclass(frozen=True, slots=True)
class SaveIdentity:
    """Write the identity file durably, remove the temporary one, then report `saved`."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class NextIdCall:
    """1012"""


@dataclass(frozen=True, slots=True)
class ApplyIdCall:
    """1013, with what the temporary file holds"""

    identity: TemporaryIdentity


@dataclass(frozen=True, slots=True)
class RegisterCall:
    """1003"""

    broker_id: int


@dataclass(frozen=True, slots=True)
class ElectCall:
    """1002, not designated; the controllers must have had a heartbeat of ours before it"""

    broker_id: int


@dataclass(frozen=True, slots=True)
class PollCall:
    """1004"""


@dataclass(frozen=True, slots=True)
class AlterCall:
    """1001; acks count over the union with `proposal` from before it is sent. `again` is a repeated unsettled one."""

    proposal: Proposal
    again: bool


Call = NextIdCall | ApplyIdCall | RegisterCall | ElectCall | PollCall | AlterCall
Step = SaveTemporary | SaveIdentity | Call


@dataclass(frozen=True, slots=True)
class Reply:
    """A controller's answer, as far as a broker needs it; `grant` is None when no master was named."""

    code: int
    grant: Grant | None = None
    master_epoch: int = 0  # also known when there is no master
    next_broker_id: int = 0
    sync_state_set: frozenset[int] = frozenset()
    sync_state_set_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Applied:
    """The controllers' set of the epoch we lead: what acks are counted over, and no proposal any more."""

    members: frozenset[int]
    sync_state_set_epoch: int


@dataclass(frozen=True, slots=True)
class ProposalFailed:
    """The proposal under way will never be applied. While its fate is open nothing is said and the union stays."""


@dataclass(frozen=True, slots=True)
class MasterMoved:
    """The master of our epoch is reached under another address."""

    address: str


Effect = Applied | ProposalFailed | MasterMoved
