"""The votes that a candidate has been told of.

Invariant: a vote counts for the term that it was given in and for no other, a pre-vote never counts as a vote; asking for
pre-votes again takes nothing from votes that are still on their way. Pure."""

from __future__ import annotations

from typing import Protocol

from dledger.raft.log import RaftLog
from dledger.raft.messages import VoteRequest, VoteResponse, VoteResult


class Ballots:
    """`votes` is empty unless this member stood for election in its term, and has not won it yet."""

    def __init__(self) -> None:
        self.votes: set[str] = set()
        self.pre_votes: set[str] = set()
        self.pre_voting = False

    def open(self, candidate: str, *, pre_vote: bool) -> None:
        """The candidate votes for itself."""
        self.pre_voting = pre_vote
        if pre_vote:
            self.pre_votes = {candidate}
        else:
            self.votes = {candidate}

    def close(self) -> None:
        """The term is won, or over."""
        self.votes = set()

    def count(self, voter: str, response: VoteResponse, term: int) -> None:
        """`term` is the candidate's."""
        if response.result is not VoteResult.ACCEPT:
            return
        if response.pre_vote:
            if self.pre_voting and response.ballot_term == term + 1:
                self.pre_votes.add(voter)
        elif self.votes and response.ballot_term == term:
            self.votes.add(voter)


def refusal_of_log(request: VoteRequest, own: RaftLog) -> VoteResult | None:
    """None where the candidate's log is at least as complete as the voter's [3.6.1]."""
    if request.ledger_end_term < own.last_term:
        return VoteResult.REJECT_EXPIRED_LEDGER_TERM
    if request.ledger_end_term == own.last_term and request.ledger_end_index < own.last_index:
        return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    return None


class Voter(Protocol):
    """What of a member is asked and changed here."""

    term: int
    voted_for: str | None
    leader_id: str | None
    election_due_ms: int
    log: RaftLog

    @property
    def counts(self) -> bool: ...

    def leader_is_alive(self) -> bool: ...

    def become_follower(self, term: int, leader_id: str | None) -> None: ...

    def draw_election_due(self) -> int: ...


def judged_vote(voter: Voter, candidate: str, request: VoteRequest) -> VoteResult:
    """One vote a term, first come first served [3.4], for a log at least as complete as the voter's [3.6.1]; whether either of
    them votes by the voter's own list does not matter, which may be older than the candidate's [4.1]."""
    if request.term < voter.term or (request.pre_vote and request.term == voter.term):
        return VoteResult.REJECT_EXPIRED_VOTE_TERM
    if voter.leader_is_alive() and voter.leader_id != candidate and not request.transfer:
        return VoteResult.REJECT_ALREADY_HAS_LEADER
    if request.term > voter.term and not request.pre_vote:
        voter.become_follower(request.term, None)
    if not voter.counts:
        return VoteResult.REJECT_NEWCOMER
    if (refusal := refusal_of_log(request, voter.log)) is not None:
        return refusal
    if not request.pre_vote:
        if voter.voted_for not in (None, candidate) or voter.leader_id is not None:
            return VoteResult.REJECT_ALREADY_VOTED
        voter.voted_for = candidate
        voter.election_due_ms = voter.draw_election_due()
    return VoteResult.ACCEPT
