"""What a broker's place in its set asks the shell to do, and what controllers answer.

Values only; `broker.role.membership` says when each of them is right. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from broker.role.identity import Identity, TemporaryIdentity


@dataclass(frozen=True, slots=True)
class Grant:
    """What a controller said of the set's master: `master_address` is its remoting address."""

    master_epoch: int
    master_id: int
    master_address: str
    sync_state_set: frozenset[int]
    sync_state_set_epoch: int


# -- controllers: report `saved`, `replied` or `not_replied`


@dataclass(frozen=True, slots=True)
class SaveTemporary:
    """Write the temporary file durably, then report `saved`."""

    identity: TemporaryIdentity


@dataclass(frozen=True, slots=True)
class SaveIdentity:
    """Write the identity file durably, remove the temporary one, then report `saved`."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class NoteSetBack:
    """This disk was set back: note it durably, and draw a start number above `known`, then report `saved`."""

    known: int


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


Call = NextIdCall | ApplyIdCall | RegisterCall | ElectCall | PollCall


@dataclass(frozen=True, slots=True)
class Reply:
    """A controller's answer, as far as a broker needs it; `grant` is None when no master was named."""

    code: int
    grant: Grant | None = None
    master_epoch: int = 0  # also known when there is no master
    next_broker_id: int = 0
    known_start_number: int = 0
    """With a refusal to register: so great a number of this store was heard."""
    other_address: str = ""
    """Where another process lives, or asks, that says that it is this broker."""


@dataclass(frozen=True, slots=True)
class AskAll:
    """Ask each controller for the set (1004), next to a call that may be under way; report each answer as `answered`, and
    `unanswered` where none of them leads."""


@dataclass(frozen=True, slots=True)
class Disbelieved:
    """An epoch that no cluster could have reached was named; `source` says where. Nothing was taken of it."""

    source: str
    why: str


@dataclass(frozen=True, slots=True)
class BeginHeartbeats:
    """The controllers know our id."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Another process, at `address`, says that it is this broker; `registered`: that one counts, and this one does not."""

    address: str
    registered: bool


# -- roles: report `role_taken`, `role_refused` or `role_failed`


@dataclass(frozen=True, slots=True)
class RoleAnnounced:
    """A newer role was granted; it is taken when the change under way, if there is one, is over."""

    grant: Grant


@dataclass(frozen=True, slots=True)
class Lead:
    """Become master."""

    grant: Grant


@dataclass(frozen=True, slots=True)
class Follow:
    """Become slave, as `broker_id`."""

    grant: Grant
    broker_id: int


@dataclass(frozen=True, slots=True)
class SetRead:
    """The controllers' SyncStateSet of the epoch that this broker leads."""

    members: frozenset[int]
    sync_state_set_epoch: int


@dataclass(frozen=True, slots=True)
class MasterMoved:
    """The master of our epoch is reached under another address."""

    address: str
    master_epoch: int


Action = (
    SaveTemporary
    | SaveIdentity
    | NoteSetBack
    | Call
    | AskAll
    | Disbelieved
    | BeginHeartbeats
    | Duplicate
    | RoleAnnounced
    | Lead
    | Follow
    | SetRead
    | MasterMoved
)
