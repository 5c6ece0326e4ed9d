"""The votes of a candidate, a member's contact to its leader, and a bound on the term in a message. Because of this bound, one
broken or forged member cannot use up the terms of a group.

Invariant: a vote counts only for the term in which it was given, and a pre-vote never counts as a vote. A candidate that asks
for pre-votes again keeps the votes that are still on their way. A leader that sent a message just now is not suspected. A term
more than TERM_JUMP_MAX above the member's own term is accepted only when other members in this member's list, enough for a
majority, report about the same term. A term above TERM_COUNTED_MAX is never accepted. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from dledger.raft.log import RaftLog
from dledger.raft.messages import TERM_MAX, VoteRequest, VoteResponse, VoteResult


class Ballots:
    """The votes of one candidate. `votes` is empty unless this member is a candidate of its term."""

    def __init__(self) -> None:
        self.votes: set[str] = set()
        self.pre_votes: set[str] = set()
        self.pre_voting = False

    def open(self, candidate: str, *, pre_vote: bool) -> None:
        """Opens an election, in which the candidate votes for itself."""
        self.pre_voting = pre_vote
        if pre_vote:
            self.pre_votes = {candidate}
        else:
            self.votes = {candidate}

    def close(self) -> None:
        """Ends the election, because it is won or its term is over."""
        self.votes = set()

    def count(self, voter: str, response: VoteResponse, term: int) -> None:
        """Counts a response; `term` is the candidate's."""
        if response.result is not VoteResult.ACCEPT:
            return
        if response.pre_vote:
            if self.pre_voting and response.ballot_term == term + 1:
                self.pre_votes.add(voter)
        elif self.votes and response.ballot_term == term:
            self.votes.add(voter)


def refusal_of_log(request: VoteRequest, own: RaftLog) -> VoteResult | None:
    """The refusal because of the candidate's log; None if this log is at least as complete as the voter's [3.6.1]."""
    if request.ledger_end_term < own.last_term:
        return VoteResult.REJECT_EXPIRED_LEDGER_TERM
    if request.ledger_end_term == own.last_term and request.ledger_end_index < own.last_index:
        return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    return None


OTHERS_NOTICE_MS = 20
"""All followers notice within about this time that a leader has ended."""


class LeaderContact:
    """One member's contact to its present leader. A message counts as recent for `fresh_ms`."""

    def __init__(self, fresh_ms: int) -> None:
        self._fresh_ms = fresh_ms
        self._heard_ms: int | None = None
        self.suspected = False
        """Whether the leader's connection ended, and the leader was asked whether it still leads."""

    def heard(self, now_ms: int) -> None:
        self._heard_ms = now_ms
        self.suspected = False

    def gone(self, now_ms: int, rank: int, step_ms: int) -> int:
        """Called when the leader cannot be reached, or does not lead any more. Returns the time from which the member with this
        `rank` (from 0) may open an election."""
        self._heard_ms = None
        self.suspected = False
        return now_ms + OTHERS_NOTICE_MS + rank * step_ms

    def is_fresh(self, now_ms: int) -> bool:
        return self._heard_ms is not None and now_ms - self._heard_ms < self._fresh_ms


TERM_JUMP_MAX = 1 << 20
"""One election each second for twelve days. A member that was cut off for longer finds a majority with about the same term. To
use up all terms in such steps takes 2^41 messages, each with a sync."""
TERM_COUNTED_MAX = TERM_MAX // 2
"""No election reaches this term, and a higher term is never written to a disk."""


class TermBound:
    """The bound for one member. `others` are the other members in this member's list; `quorum` is a majority of all members. A
    term from a node outside this list does not count, because such a node could invent enough members for a majority."""

    def __init__(self, others: Iterable[str], quorum: int) -> None:
        self.quorum = quorum
        self._others = frozenset(others)
        self._reported: dict[str, int] = {}
        """Other member -> the last term above the bound that this member reported."""

    def members_are(self, others: Iterable[str], quorum: int) -> None:
        """Sets the members to those of this member's log. Reports of other nodes are forgotten."""
        self._others, self.quorum = frozenset(others), quorum
        self._reported = {peer: term for peer, term in self._reported.items() if peer in self._others}

    def allows(self, sender: str, term: int, own_term: int) -> bool:
        """Whether a message of `sender` may move a member from `own_term` to `term`."""
        if term <= own_term + TERM_JUMP_MAX:
            self._reported.pop(sender, None)
            return True
        if term > TERM_COUNTED_MAX:
            return False
        if sender in self._others:
            self._reported[sender] = term
        return sum(reported >= term - TERM_JUMP_MAX for reported in self._reported.values()) >= self.quorum
