"""The messages between members of a group; dledger.node.messagejson encodes them.

Invariant: messages are immutable values, and their fields are the members of the JSON (see remoting.wirefields). Each kind of
request has one kind of answer. The `term` of an answer is the answering member's term.

Differences from DLedger 0.3.1, which are possible because these groups never mix with Java's:
- STANDING, which DLedger does not have, is the recovery request of a member without a past (dledger.raft.rejoin);
- VOTE has `pre_vote`. Its answer names the ballot to which it belongs (`pre_vote`, `ballot_term`), and the answer's `term` is
  always the voter's own;
- HEART_BEAT has `read_round`, which the answer echoes. The echo of a quorum proves the leadership for read-index;
- every PUSH has the index and term of the entry before its entries, and may have several entries. COMPARE is a PUSH without
  entries that looks for the last common entry. COMMIT is a PUSH that only moves the commit index. TRUNCATE is not used: a
  follower cuts only where an APPEND proves a conflict;
- VOTE has `transfer` in a leadership transfer, so that members that still follow the leader do not refuse;
- LEADERSHIP_TRANSFER from an operator may have no term and no transferee; this means any term, and the leader's choice;
- INSTALL_SNAPSHOT, a new code, has a part of a snapshot for a follower that is missing entries from before the leader's log;
- the `term` of a PUSH answer is the follower's own. `x_term` and `x_index` help the leader to back up by terms.

Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Annotated

from dledger.raft.entries import NO_INDEX, NO_TERM, Entry
from remoting.wirefields import IntegerRange, wire

TERM_MAX = (1 << 62) - 1
"""Larger terms and indexes are refused. No election reaches them, and an index plus one must fit into 64 bits."""
Known = Annotated[int, IntegerRange(0, TERM_MAX)]
"""A term, an index or a count."""
KnownOrNone = Annotated[int, IntegerRange(-1, TERM_MAX)]
"""A term, an index or a count, or NO_TERM or NO_INDEX."""

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
"""Wire names that members of the first versions do not send. An absent name means the default."""


class MessageCode(IntEnum):
    VOTE = 51001
    HEART_BEAT = 51002
    PUSH = 51004
    LEADERSHIP_TRANSFER = 51005
    STANDING = 51020
    INSTALL_SNAPSHOT = 51021


class ResultCode(IntEnum):
    """The `code` in an answer's body. The `code` in the header is always 200."""

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
    """The entry may be committed or not."""
    LEADER_PENDING_FULL = 503
    LEADER_TRANSFERRING = 506
    CHANGE_REFUSED = 520
    """Not in upstream. The members stay as they are."""


class VoteResult(Enum):
    ACCEPT = "ACCEPT"
    REJECT_UNKNOWN_LEADER = "REJECT_UNKNOWN_LEADER"
    REJECT_EXPIRED_LEDGER_TERM = "REJECT_EXPIRED_LEDGER_TERM"
    REJECT_SMALL_LEDGER_END_INDEX = "REJECT_SMALL_LEDGER_END_INDEX"
    REJECT_EXPIRED_VOTE_TERM = "REJECT_EXPIRED_VOTE_TERM"
    REJECT_ALREADY_VOTED = "REJECT_ALREADY_VOTED"
    REJECT_ALREADY_HAS_LEADER = "REJECT_ALREADY_HAS_LEADER"
    REJECT_NEWCOMER = "REJECT_NEWCOMER"
    """Not in upstream. The voter may not vote yet."""
    UNKNOWN = "UNKNOWN"


class PushType(Enum):
    COMPARE = "COMPARE"
    APPEND = "APPEND"
    COMMIT = "COMMIT"


@dataclass(frozen=True, slots=True)
class VoteRequest:
    term: Known
    """The term of the election; in a pre-vote the term that an election would open."""
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
    """Whether the sender is a newcomer, which does not count yet."""
    committed_index: KnownOrNone = TERM_MAX
    """The sender's commit index; members of old versions do not send it."""


@dataclass(frozen=True, slots=True)
class PushRequest:
    term: Known
    type: PushType
    prev_index: KnownOrNone = wire("preLogIndex")
    prev_term: KnownOrNone = wire("preLogTerm")
    commit_index: KnownOrNone = wire()
    entries: Sequence[Entry] = wire("batchEntry", default=())
    session: Known = 0
    """The session is echoed by the answer. An answer with another session is from a former life of the follower."""


@dataclass(frozen=True, slots=True)
class PushResponse:
    term: Known
    code: ResultCode
    index: Known
    """The first index of the request, which is its prev_index + 1."""
    count: Known
    end_index: KnownOrNone
    x_term: KnownOrNone = NO_TERM
    """Set on a mismatch: the follower's term at the request's prev_index. `x_index` is the index where this term begins in the
    follower's log."""
    x_index: KnownOrNone = NO_INDEX
    session: Known = 0
    newcomer: bool = False

    def answers(self, request: PushRequest) -> bool:
        """Whether the fields of this answer match the request."""
        return (self.index, self.count) == (request.prev_index + 1, len(request.entries))


@dataclass(frozen=True, slots=True)
class TransferRequest:
    """Sent to the transferee, it means: open an election now. Sent to the leader by an operator, it means: transfer the
    leadership."""

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
    """A newcomer asks whether it may vote. The term in this request changes no member's term."""

    term: Known
    session: Known


@dataclass(frozen=True, slots=True)
class RecoveryResponse:
    term: Known
    session: Known
    """The session of the request."""
    has_past: bool
    """Whether the answering member has been in a term, or holds an entry."""
    admits: KnownOrNone
    """The commit index of the answering member, if it leads and may serve; else -1. A newcomer that holds the log up to this
    index may vote."""


@dataclass(frozen=True, slots=True)
class InstallRequest:
    """A part of the state of a snapshot."""

    term: Known
    index: Known = wire("snapshotIndex")
    """The last entry in the snapshot, and its term."""
    index_term: Known = wire("snapshotTerm")
    size: Known = wire()
    """The number of bytes of the whole state."""
    check: Known = wire()
    """The CRC-32 of the whole state."""
    offset: Known = wire()
    """The offset of `data` in the state."""
    data: bytes = wire()
    session: Known = 0
    members: str = ""
    """The members of the group at the snapshot's last entry, if an entry has them
    (`dledger.raft.membership.encode_configurations`)."""


@dataclass(frozen=True, slots=True)
class InstallResponse:
    term: Known
    code: ResultCode
    index: Known = wire("snapshotIndex")
    """The snapshotIndex of the request."""
    offset: Known = wire()
    """The number of bytes that the follower has. If it has all bytes, its log holds all entries up to `index`, or begins after
    `index`."""
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
    """The answer to `request`; `hint` is (`x_term`, `x_index`)."""
    first, count = request.prev_index + 1, len(request.entries)
    return PushResponse(term, code, first, count, end_index, *hint, request.session, newcomer)
