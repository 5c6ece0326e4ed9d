"""The actions of the Raft core, which the core's caller performs, and their order in one turn.

Invariant: state that must be durable before other members may see it is in one action with the messages that show it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from dledger.raft.entries import Entries, Entry
from dledger.raft.messages import Request, Response
from dledger.raft.snapshot import Snapshot


class Role(Enum):
    FOLLOWER = "FOLLOWER"
    CANDIDATE = "CANDIDATE"
    LEADER = "LEADER"


@dataclass(frozen=True, slots=True)
class Vote:
    """The state that must survive a crash, apart from the log [3.8]."""

    term: int = 0
    voted_for: str | None = None
    newcomer: bool = False
    """The member may not vote yet; see dledger.raft.rejoin."""


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
    """Make durable, in this order: `vote`; `snapshot`, which replaces the whole log; a cut of all entries from `cut_from` on;
    `entries`. Send `messages` only after this."""

    vote: Vote | None
    cut_from: int | None
    entries: Sequence[Entry]
    messages: tuple[Send | Reply, ...]
    snapshot: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class BecomeRole:
    """The role, the term or the known leader changed."""

    role: Role
    term: int
    leader_id: str | None


@dataclass(frozen=True, slots=True)
class Commit:
    """Every entry up to `index` is committed: apply the entries that are not applied yet."""

    index: int


@dataclass(frozen=True, slots=True)
class ReadReady:
    """The read may be served from a state in which `index` is applied. If `index` is None, the leadership is lost or not
    proven."""

    read_id: int
    index: int | None


@dataclass(frozen=True, slots=True)
class Load:
    """Read entries for `peer` that are not in memory any more, at most `entries_max` from `first_index` on, and pass them to
    `Raft.loaded`."""

    peer: str
    first_index: int
    entries_max: int


@dataclass(frozen=True, slots=True)
class LoadChunk:
    """Read a part of a snapshot for `peer`, and pass it to `Raft.loaded`. Read from `offset` on if the newest snapshot ends
    with entry `index`; otherwise, or if `index` is NO_INDEX, read the beginning of the newest snapshot."""

    peer: str
    index: int
    offset: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Load `snapshot`, which covers all entries up to its last entry, into the state machine."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class TransferFailed:
    """The leadership transfer failed: the leader stays."""


@dataclass(frozen=True, slots=True)
class Forgot:
    """`peer` has restarted and lost entries that it had acknowledged to this leader, because its disk was set back."""

    peer: str
    index: int
    """`peer` had acknowledged the entries up to this index."""
    term: int


Action = (
    Send
    | Reply
    | PersistThenSend
    | BecomeRole
    | Commit
    | ReadReady
    | Load
    | LoadChunk
    | Restore
    | TransferFailed
    | Forgot
)


@dataclass(slots=True)
class Turn:
    """The output of one input, collected until `actions` returns it."""

    messages: list[Send | Reply] = field(default_factory=list)
    snapshot: Snapshot | None = None
    """The snapshot that replaced the log."""
    cut_from: int | None = None
    entries: Entries = field(default_factory=Entries)
    reads: list[ReadReady] = field(default_factory=list)
    loads: list[Load | LoadChunk] = field(default_factory=list)
    transfer_failed: bool = False
    forgot: Forgot | None = None

    def persists(self, vote: Vote | None) -> bool:
        """Whether anything must be made durable."""
        changed = self.snapshot is not None or self.cut_from is not None or bool(self.entries)
        return vote is not None or changed

    def actions(self, vote: Vote | None, changed: Sequence[Action], *, leads: bool) -> list[Action]:
        """The actions of the turn. `vote` is the vote if it changed; `changed` are further actions. A leader's messages do not
        wait for its own entries [10.2.1]."""
        messages: list[Action] = [*self.messages]
        if self.persists(vote):
            first = leads and vote is None
            step = PersistThenSend(
                vote, self.cut_from, self.entries, () if first else tuple(self.messages), self.snapshot
            )
            messages = [*messages, step] if first else [step]
        restored = [] if self.snapshot is None else [Restore(self.snapshot)]
        failed: list[Action] = [TransferFailed()] if self.transfer_failed else []
        forgot = [] if self.forgot is None else [self.forgot]
        return [*messages, *restored, *changed, *self.reads, *self.loads, *failed, *forgot]


class LastReady:
    """The state after the last turn, to find changes. It begins with the state on the disk, which the caller knows."""

    def __init__(self, vote: Vote, role: BecomeRole, committed_index: int) -> None:
        self._vote = vote
        self._role = role
        self._committed_index = committed_index

    def new_vote(self, vote: Vote) -> Vote | None:
        """`vote`, if it differs from the last vote; else None."""
        if vote == self._vote:
            return None
        self._vote = vote
        return vote

    def changed(self, role: BecomeRole, committed_index: int) -> list[Action]:
        changes: list[Action] = []
        if role != self._role:
            changes.append(role)
            self._role = role
        if committed_index != self._committed_index:
            changes.append(Commit(committed_index))
            self._committed_index = committed_index
        return changes
