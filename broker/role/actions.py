"""Actions that the membership state machine asks of its shell, and the controllers' answers.

Values only; `broker.role.membership` decides on the actions. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from broker.role.identity import Identity, TemporaryIdentity


@dataclass(frozen=True, slots=True)
class Grant:
    """A master that a controller names; `master_address` is the master's remoting address."""

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
    """CONTROLLER_GET_NEXT_BROKER_ID (1012)."""


@dataclass(frozen=True, slots=True)
class ApplyIdCall:
    """CONTROLLER_APPLY_BROKER_ID (1013), with the contents of the temporary file."""

    identity: TemporaryIdentity


@dataclass(frozen=True, slots=True)
class RegisterCall:
    """CONTROLLER_REGISTER_BROKER (1003)."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class ElectCall:
    """CONTROLLER_ELECT_MASTER (1002), without a designated broker. The shell sends a heartbeat before it."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class PollCall:
    """CONTROLLER_GET_REPLICA_INFO (1004)."""


Call = NextIdCall | ApplyIdCall | RegisterCall | ElectCall | PollCall


@dataclass(frozen=True, slots=True)
class ControllerReply:
    """The parts of a controller's answer that a broker needs; `grant` is None if the answer names no master."""

    code: int
    grant: Grant | None = None
    master_epoch: int = 0  # also set when there is no master
    next_broker_id: int = 0
    known_start_number: int = 0
    """The highest start number of this store that controllers received; set if they rejected a registration."""
    other_address: str = ""
    """The address of another process that uses this broker's identity."""


@dataclass(frozen=True, slots=True)
class AskAll:
    """Ask each controller for the set (CONTROLLER_GET_REPLICA_INFO, 1004), in parallel to a pending call. Report each answer as
    `answered`; report `unanswered` if no controller answered as leader."""


@dataclass(frozen=True, slots=True)
class Disbelieved:
    """`source` sent an epoch that no cluster could have reached; the epoch was ignored."""

    source: str
    why: str


@dataclass(frozen=True, slots=True)
class BeginHeartbeats:
    """Start heartbeats: the controllers know this broker's id."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Another process, at `address`, claims this broker's identity. If `registered`, controllers take it for this broker."""

    address: str
    registered: bool


# -- roles: report `role_taken`, `role_refused` or `role_failed`


@dataclass(frozen=True, slots=True)
class RoleAnnounced:
    """A newer role was granted. It is taken after the change of role that runs now, if one runs."""

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
    """Store the controllers' SyncStateSet for the epoch in which this broker leads."""

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
