"""What the Raft core tells its shell to do.

Invariant: whatever must be durable before others may see it travels in one action with the messages that show it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dledger.entry import Entry
from dledger.messages import Request, Response


class Role(Enum):
    FOLLOWER = "FOLLOWER"
    CANDIDATE = "CANDIDATE"
    LEADER = "LEADER"


@dataclass(frozen=True, slots=True)
class Vote:
    """What must survive a crash besides the log [3.8]."""

    term: int = 0
    voted_for: str | None = None
    newcomer: bool = False
    """It may not vote yet; see dledger.standing."""


@dataclass(frozen=True, slots=True)
class Send:
    to: str
    request: Request


@dataclass(frozen=True, slots=True)
class Reply:
    ticket: int
    response: Response


@dataclass(frozen=True, slots=True)
class PersistThenSend:
    """Make durable, in this order: `vote`, a cut of all entries from `cut_from` on, `entries`. Only then
    let `messages` out."""

    vote: Vote | None
    cut_from: int | None
    entries: tuple[Entry, ...]
    messages: tuple[Send | Reply, ...]


@dataclass(frozen=True, slots=True)
class BecomeRole:
    """The role, the term or the known leader changed."""

    role: Role
    term: int
    leader_id: str | None


@dataclass(frozen=True, slots=True)
class Commit:
    """Every entry up to `index` is decided: apply those not yet applied."""

    index: int


@dataclass(frozen=True, slots=True)
class ReadReady:
    """The read may be served from a state that has `index` applied; index None: leadership is gone or not
    proven."""

    read_id: int
    index: int | None


@dataclass(frozen=True, slots=True)
class Load:
    """Read entries for `peer` that are in memory no more, `entries_max` at most from `first_index` on, and give them to
    `loaded`."""

    peer: str
    first_index: int
    entries_max: int


@dataclass(frozen=True, slots=True)
class TransferFailed:
    """The leader that was to hand over leads on."""


Action = Send | Reply | PersistThenSend | BecomeRole | Commit | ReadReady | Load | TransferFailed
