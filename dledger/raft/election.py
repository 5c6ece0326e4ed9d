"""Votes that a candidate has, and what a member has heard of the leader that it follows.

Invariants: a vote counts for the term that it was given in and for no other, a pre-vote never counts as a vote; asking for
pre-votes again takes nothing from votes that are still on their way. A leader that was heard just now is not suspected.

How far a message may carry the term: one member, broken or forged, cannot use up the terms of a group.

Invariant: a term more than TERM_JUMP_MAX above the own one counts only when as many others as elect a leader tell of
about it, all of them in the own list; above TERM_COUNTED_MAX none ever does. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from dledger.raft.log import RaftLog
from dledger.raft.messages import TERM_MAX, VoteRequest, VoteResponse, VoteResult


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


OTHERS_NOTICE_MS = 20
"""A leader's end is seen by all its followers, but not in the same moment."""


class LeaderContact:
    """Of one member, whoever leads it; a sign of life is fresh for `fresh_ms`."""

    def __init__(self, fresh_ms: int) -> None:
        self._fresh_ms = fresh_ms
        self._heard_ms: int | None = None
        self.suspected = False
        """Its connection ended, and it was asked whether it leads still."""

    def heard(self, now_ms: int) -> None:
        self._heard_ms = now_ms
        self.suspected = False

    def gone(self, now_ms: int, rank: int, step_ms: int) -> int:
        """It cannot be reached, or leads no more. When the member whose turn is the `rank`-th, from 0, may stand."""
        self._heard_ms = None
        self.suspected = False
        return now_ms + OTHERS_NOTICE_MS + rank * step_ms

    def is_fresh(self, now_ms: int) -> bool:
        return self._heard_ms is not None and now_ms - self._heard_ms < self._fresh_ms


TERM_JUMP_MAX = 1 << 20
"""Twelve days of an election won each second: who was cut off for longer finds a majority that says the same, and using
up all terms in such steps takes 2^41 messages, each of them synced."""
TERM_COUNTED_MAX = TERM_MAX // 2
"""No election gets there, and what is above is never written to a disk."""


class TermBound:
    """`others` are those of the own list, `quorum` of whom elect a leader. Who is in another list only may have made it up,
    with as many names as are a majority: its word is no proof."""

    def __init__(self, others: Iterable[str], quorum: int) -> None:
        self.quorum = quorum
        self._others = frozenset(others)
        self._told: dict[str, int] = {}
        """Of each other member, the term beyond the bound that it told last."""

    def members_are(self, others: Iterable[str], quorum: int) -> None:
        """Of the own log, from now on: what anybody else told is forgotten."""
        self._others, self.quorum = frozenset(others), quorum
        self._told = {peer: term for peer, term in self._told.items() if peer in self._others}

    def allows(self, sender: str, term: int, own_term: int) -> bool:
        """Whether `sender` may carry a member from `own_term` to `term`."""
        if term <= own_term + TERM_JUMP_MAX:
            self._told.pop(sender, None)
            return True
        if term > TERM_COUNTED_MAX:
            return False
        if sender in self._others:
            self._told[sender] = term
        return sum(told >= term - TERM_JUMP_MAX for told in self._told.values()) >= self.quorum
