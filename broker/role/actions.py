"""Actions of the membership state machine for its shell, and answers of controllers.

Values only; `broker.role.membership` says when each of them is right. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from broker.role.identity import Identity, TemporaryIdentity


@dataclass(frozen=True, slots=True)
class Grant:
    """A master named by a controller: `master_address` is its remoting address."""

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
    """Note durably that this disk was set back, draw a start number above `known`, then report `saved`."""

    known: int


@dataclass(frozen=True, slots=True)
class NextIdCall:
    """1012"""


@dataclass(frozen=True, slots=True)
class ApplyIdCall:
    """1013, with the contents of the temporary file"""

    identity: TemporaryIdentity


@dataclass(frozen=True, slots=True)
class RegisterCall:
    """1003"""

    broker_id: int


@dataclass(frozen=True, slots=True)
class ElectCall:
    """1002, not designated; the controllers must have received a heartbeat of this broker before it"""

    broker_id: int


@dataclass(frozen=True, slots=True)
class PollCall:
    """1004"""


Call = NextIdCall | ApplyIdCall | RegisterCall | ElectCall | PollCall


@dataclass(frozen=True, slots=True)
class ControllerReply:
    """A controller's answer, reduced to the parts that a broker needs; `grant` is None when no master was named."""

    code: int
    grant: Grant | None = None
    master_epoch: int = 0  # also set when there is no master
    next_broker_id: int = 0
    known_start_number: int = 0
    """With a rejected registration: the highest start number of this store that controllers received."""
    other_address: str = ""
    """Where another process with this broker's identity runs, or asks from."""


@dataclass(frozen=True, slots=True)
class AskAll:
    """Ask each controller for the set (1004), in parallel to a pending call; report each answer as `answered`, and
    `unanswered` where none of them leads."""


@dataclass(frozen=True, slots=True)
class Disbelieved:
    """An epoch that no cluster could have reached was received from `source` and ignored."""

    source: str
    why: str


@dataclass(frozen=True, slots=True)
class BeginHeartbeats:
    """Start heartbeats: the controllers know this broker's id."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Another process, at `address`, claims this broker's identity; if `registered`, the controllers count that one
    instead."""

    address: str
    registered: bool


# -- roles: report `role_taken`, `role_refused` or `role_failed`


@dataclass(frozen=True, slots=True)
class RoleAnnounced:
    """A newer role was granted; it is taken when the current change of role, if any, has ended."""

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
    """Set the controllers' SyncStateSet of the epoch that this broker leads."""

    members: frozenset[int]
    sync_state_set_epoch: int


@dataclass(frozen=True, slots=True)
class MasterMoved:
    """The master of this epoch has a new address."""

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
