"""What members of a group say to each other; dledger.messagejson has the bytes of it.

Invariant: messages are values; to each kind of request belongs one kind of answer, whose `term` is the answering member's.

Departures from DLedger 0.3.1, possible because our groups never mix with Java's:
- VOTE carries `pre_vote`; its answer says which ballot it belongs to (`pre_vote`, `ballot_term`) and `term` is
  always the voter's own;
- HEART_BEAT carries `read_round`, echoed by the answer: a quorum that echoes a round proves leadership for
  read-index;
- every PUSH says which entry comes before its own, of which it may have several; COMPARE is a PUSH of no entries that
  looks for the last common one, COMMIT one that moves the commit index only; TRUNCATE is not spoken: a follower
  cuts only where an APPEND proves a conflict;
- a PUSH answer's `term` is the follower's own; `x_term`, `x_index` help the leader back up by terms.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

from dledger.entry import NO_INDEX, NO_TERM, Entry


class MessageCode(IntEnum):
    VOTE = 51001
    HEART_BEAT = 51002
    PUSH = 51004


class ResultCode(IntEnum):
    """The `code` inside an answer's body; the header's is always 200."""

    SUCCESS = 200
    UNKNOWN_GROUP = 400
    UNKNOWN_MEMBER = 401
    EXPIRED_TERM = 403
    INCONSISTENT_STATE = 406
    INCONSISTENT_INDEX = 408
    INCONSISTENT_LEADER = 409
    UNEXPECTED_ARGUMENT = 411


class VoteResult(Enum):
    ACCEPT = "ACCEPT"
    REJECT_UNKNOWN_LEADER = "REJECT_UNKNOWN_LEADER"
    REJECT_EXPIRED_LEDGER_TERM = "REJECT_EXPIRED_LEDGER_TERM"
    REJECT_SMALL_LEDGER_END_INDEX = "REJECT_SMALL_LEDGER_END_INDEX"
    REJECT_EXPIRED_VOTE_TERM = "REJECT_EXPIRED_VOTE_TERM"
    REJECT_ALREADY_VOTED = "REJECT_ALREADY_VOTED"
    REJECT_ALREADY_HAS_LEADER = "REJECT_ALREADY_HAS_LEADER"
    UNKNOWN = "UNKNOWN"


class PushType(Enum):
    COMPARE = "COMPARE"
    APPEND = "APPEND"
    COMMIT = "COMMIT"


@dataclass(frozen=True, slots=True)
class VoteRequest:
    term: int
    """The term voted on; of a pre-vote the one that an election would open."""
    ledger_end_index: int
    ledger_end_term: int
    pre_vote: bool = False


@dataclass(frozen=True, slots=True)
class VoteResponse:
    term: int
    ballot_term: int
    result: VoteResult
    pre_vote: bool = False


@dataclass(frozen=True, slots=True)
class HeartBeatRequest:
    term: int
    read_round: int = 0


@dataclass(frozen=True, slots=True)
class HeartBeatResponse:
    term: int
    code: ResultCode
    read_round: int = 0


@dataclass(frozen=True, slots=True)
class PushRequest:
    term: int
    type: PushType
    prev_index: int
    prev_term: int
    commit_index: int
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class PushResponse:
    term: int
    code: ResultCode
    index: int
    """First index of the request: its prev_index + 1."""
    count: int
    end_index: int
    x_term: int = NO_TERM
    """On a mismatch: the follower's term at the request's prev_index, and where that term begins in its
    log."""
    x_index: int = NO_INDEX


Request = VoteRequest | HeartBeatRequest | PushRequest
Response = VoteResponse | HeartBeatResponse | PushResponse
Message = Request | Response

CODE_OF: dict[type[Request], MessageCode] = {
    VoteRequest: MessageCode.VOTE,
    HeartBeatRequest: MessageCode.HEART_BEAT,
    PushRequest: MessageCode.PUSH,
}
