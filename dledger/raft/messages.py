"""The messages between members of a group; dledger.node.messagejson has their bytes.

Invariant: messages are values, and their fields are the members of the JSON (see remoting.wirefields). Each kind of request has
one kind of answer, whose `term` is the answering member's.

Departures from DLedger 0.3.1, possible because these groups never mix with Java's:
- STANDING, which DLedger does not have, is the recovery request of a member without a past (dledger.raft.rejoin);
- VOTE carries `pre_vote`; its answer says which ballot it belongs to (`pre_vote`, `ballot_term`), and `term` is always the
  voter's own;
- HEART_BEAT carries `read_round`, echoed by the answer: the echo of a quorum proves the leadership for read-index;
- every PUSH has the index and term of the entry before its own, which may be several; COMPARE is a PUSH without entries that
  looks for the last common one, COMMIT one that only moves the commit index; TRUNCATE is not used: a follower cuts only where
  an APPEND proves a conflict;
- VOTE carries `transfer` in a leadership transfer, so that members that still follow the leader do not refuse;
- LEADERSHIP_TRANSFER from an operator may have no term and no transferee: any term, and the leader's choice;
- INSTALL_SNAPSHOT, a new code, carries a part of a snapshot to a follower that is missing entries from before the leader's log;
- a PUSH answer's `term` is the follower's own; `x_term`, `x_index` help the leader back up by terms.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Annotated

from dledger.raft.entries import NO_INDEX, NO_TERM, Entry
from remoting.wirefields import IntegerRange, wire

TERM_MAX = (1 << 62) - 1
"""Larger terms and indexes are refused: no election reaches them, and +1 must stay within 64 bits."""
Known = Annotated[int, IntegerRange(0, TERM_MAX)]
"""A term, an index or a count."""
KnownOrNone = Annotated[int, IntegerRange(-1, TERM_MAX)]
"""Or NO_TERM, NO_INDEX."""

LATER_FIELDS = frozenset(
    {
        "committedIndex",
        "frames",
        "leadershipTransfer",
        "members",
        "membersIndex",
        "newcomer",
        "origin",
        "peers",
        "session",
        "startNumbers",
    }
)
"""Wire names that members of the first versions do not send: absent means the default."""


class MessageCode(IntEnum):
    VOTE = 51001
    HEART_BEAT = 51002
    PUSH = 51004
    LEADERSHIP_TRANSFER = 51005
    STANDING = 51020
    INSTALL_SNAPSHOT = 51021


class ResultCode(IntEnum):
    """The `code` inside an answer's body; the header's is always 200."""

    SUCCESS = 200
    UNKNOWN_GROUP = 400
    UNKNOWN_MEMBER = 401
    EXPIRED_TERM = 403
    NOT_LEADER = 404
    INCONSISTENT_STATE = 406
    INCONSISTENT_TERM = 407
    INCONSISTENT_INDEX = 408
    INCONSISTENT_LEADER = 409
    INDEX_OUT_OF_RANGE = 410
    UNEXPECTED_ARGUMENT = 411
    TAKE_LEADERSHIP_FAILED = 418
    INDEX_LESS_THAN_LOCAL_BEGIN = 419
    WAIT_QUORUM_ACK_TIMEOUT = 502
    """An entry may be committed or not."""
    LEADER_PENDING_FULL = 503
    LEADER_TRANSFERRING = 506
    CHANGE_REFUSED = 520
    """Not upstream's: the members stay as they are."""


class VoteResult(Enum):
    ACCEPT = "ACCEPT"
    REJECT_UNKNOWN_LEADER = "REJECT_UNKNOWN_LEADER"
    REJECT_EXPIRED_LEDGER_TERM = "REJECT_EXPIRED_LEDGER_TERM"
    REJECT_SMALL_LEDGER_END_INDEX = "REJECT_SMALL_LEDGER_END_INDEX"
    REJECT_EXPIRED_VOTE_TERM = "REJECT_EXPIRED_VOTE_TERM"
    REJECT_ALREADY_VOTED = "REJECT_ALREADY_VOTED"
    REJECT_ALREADY_HAS_LEADER = "REJECT_ALREADY_HAS_LEADER"
    REJECT_NEWCOMER = "REJECT_NEWCOMER"
    """Not upstream's: the voter may not vote yet."""
    UNKNOWN = "UNKNOWN"


class PushType(Enum):
    COMPARE = "COMPARE"
    APPEND = "APPEND"
    COMMIT = "COMMIT"


@dataclass(frozen=True, slots=True)
class VoteRequest:
    term: Known
    """The term of the election; in a pre-vote the one that an election would open."""
    ledger_end_index: KnownOrNone
    ledger_end_term: KnownOrNone
    pre_vote: bool = False
    transfer: bool = wire("leadershipTransfer", default=False)


@dataclass(frozen=True, slots=True)
class VoteResponse:
    term: Known
    ballot_term: Known
    result: VoteResult = wire("voteResult")
    pre_vote: bool = False


@dataclass(frozen=True, slots=True)
class HeartBeatRequest:
    term: Known
    read_round: Known = 0


@dataclass(frozen=True, slots=True)
class HeartBeatResponse:
    term: Known
    code: ResultCode
    read_round: Known = 0
    newcomer: bool = False
    """Whether the sender does not count yet."""
    committed_index: KnownOrNone = TERM_MAX
    """The sender's commit index; old members do not send it."""


@dataclass(frozen=True, slots=True)
class PushRequest:
    term: Known
    type: PushType
    prev_index: KnownOrNone = wire("preLogIndex")
    prev_term: KnownOrNone = wire("preLogTerm")
    commit_index: KnownOrNone = wire()
    entries: Sequence[Entry] = wire("batchEntry", default=())
    session: Known = 0
    """Echoed by the answer; one with another session is from a former life of that member."""


@dataclass(frozen=True, slots=True)
class PushResponse:
    term: Known
    code: ResultCode
    index: Known
    """First index of the request: its prev_index + 1."""
    count: Known
    end_index: KnownOrNone
    x_term: KnownOrNone = NO_TERM
    """On a mismatch: the follower's term at the request's prev_index, and where that term begins in its
    log."""
    x_index: KnownOrNone = NO_INDEX
    session: Known = 0
    newcomer: bool = False

    def answers(self, request: PushRequest) -> bool:
        """Whether its fields match the request."""
        return (self.index, self.count) == (request.prev_index + 1, len(request.entries))


@dataclass(frozen=True, slots=True)
class TransferRequest:
    """To the transferee: open an election now. To the leader, from an operator: transfer the leadership."""

    term: KnownOrNone
    transfer_id: str
    """The leader's id."""
    transferee_id: str
    take_index: KnownOrNone = wire("takeLeadershipLedgerIndex")
    """The end of the leader's log."""


@dataclass(frozen=True, slots=True)
class TransferResponse:
    term: Known
    code: ResultCode


@dataclass(frozen=True, slots=True)
class RecoveryRequest:
    """A newcomer asks whether it may vote; its term moves nobody."""

    term: Known
    session: Known


@dataclass(frozen=True, slots=True)
class RecoveryResponse:
    term: Known
    session: Known
    """The request's."""
    has_past: bool
    """Whether the answering member has been in any term, or holds any entry."""
    admits: KnownOrNone
    """The commit index of the answering member, if it leads and may serve; else -1. A newcomer that holds it may vote."""


@dataclass(frozen=True, slots=True)
class InstallRequest:
    """A part of the state of a snapshot."""

    term: Known
    index: Known = wire("snapshotIndex")
    """The last entry in the snapshot, and its term."""
    index_term: Known = wire("snapshotTerm")
    size: Known = wire()
    """Bytes of the whole state."""
    check: Known = wire()
    """Their CRC-32."""
    offset: Known = wire()
    """The offset of `data` in them."""
    data: bytes = wire()
    session: Known = 0
    members: str = ""
    """The members of the group there, if an entry has them (`dledger.raft.membership.encode_configurations`)."""


@dataclass(frozen=True, slots=True)
class InstallResponse:
    term: Known
    code: ResultCode
    index: Known = wire("snapshotIndex")
    """The request's."""
    offset: Known = wire()
    """The number of bytes that the follower has; all: its log holds everything up to `index`, or begins behind it."""
    session: Known = 0
    newcomer: bool = False


Request = VoteRequest | HeartBeatRequest | PushRequest | TransferRequest | RecoveryRequest | InstallRequest
Response = (
    VoteResponse | HeartBeatResponse | PushResponse | TransferResponse | RecoveryResponse | InstallResponse
)
Message = Request | Response

KINDS: dict[int, tuple[type[Request], type[Response]]] = {
    MessageCode.VOTE: (VoteRequest, VoteResponse),
    MessageCode.HEART_BEAT: (HeartBeatRequest, HeartBeatResponse),
    MessageCode.PUSH: (PushRequest, PushResponse),
    MessageCode.LEADERSHIP_TRANSFER: (TransferRequest, TransferResponse),
    MessageCode.STANDING: (RecoveryRequest, RecoveryResponse),
    MessageCode.INSTALL_SNAPSHOT: (InstallRequest, InstallResponse),
}
CODE_OF = {request: MessageCode(code) for code, (request, _) in KINDS.items()}


def answer_to_push(
    request: PushRequest, term: int, code: ResultCode, end_index: int, hint: tuple[int, int], newcomer: bool
) -> PushResponse:
    """`hint` is `x_term` and `x_index`."""
    first, count = request.prev_index + 1, len(request.entries)
    return PushResponse(term, code, first, count, end_index, *hint, request.session, newcomer)
