"""A newcomer's way to its vote, and what others answer it: the rules of dledger.raft.standing on one member.

Invariant: a leader admits nobody while a change of the members is not decided, and a newcomer settles for no list of members
that is not: whoever can have had its forgotten vote is in the list whose voters it must have heard. Pure."""

from __future__ import annotations

from typing import Protocol

from dledger.raft.actions import Role
from dledger.raft.entries import NO_INDEX
from dledger.raft.log import RaftLog
from dledger.raft.messages import StandingRequest, StandingResponse
from dledger.raft.progress import Progress
from dledger.raft.settings import DLedgerSettings
from dledger.raft.standing import Standing


class Member(Protocol):
    """What of a member is asked and changed here."""

    now_ms: int
    term: int
    role: Role
    leader_id: str | None
    voted_for: str | None
    committed_index: int
    standing: Standing
    standing_due_ms: int
    election_due_ms: int
    settings: DLedgerSettings
    log: RaftLog
    progress: dict[str, Progress]
    acquainted: set[str]

    @property
    def peers(self) -> tuple[str, ...]: ...

    @property
    def voters(self) -> tuple[str, ...]: ...

    @property
    def durable_index(self) -> int: ...

    @property
    def has_past(self) -> bool: ...

    @property
    def may_serve(self) -> bool: ...

    @property
    def members_are_decided(self) -> bool: ...

    def send(self, to: str, request: StandingRequest) -> None: ...

    def push(self, peer: str) -> None: ...

    def become_follower(self, term: int, leader_id: str | None) -> None: ...

    def draw_election_due(self) -> int: ...

    def start_pre_vote(self) -> None: ...


def ask_for_standing(member: Member) -> None:
    if member.now_ms >= member.standing_due_ms:
        member.standing_due_ms = member.now_ms + member.settings.heartbeat_interval_ms
        for peer in sorted(
            {*member.peers, *member.acquainted}
        ):  # its leader may be one that its list does not name yet
            member.send(peer, StandingRequest(member.term, member.standing.session))


def standing_answer(member: Member, peer: str, request: StandingRequest, known: bool) -> StandingResponse:
    """For a leader a new life of `peer` begins with nothing that counts. No stranger begins a group anew."""
    admits = NO_INDEX
    if member.role is Role.LEADER and peer in member.progress:
        life = member.progress[peer].next_life(request.session, member.log.last_index + 1)
        if life is not None:
            member.progress[peer] = life
            member.push(peer)
        if member.may_serve and member.members_are_decided:
            admits = member.committed_index
    return StandingResponse(member.term, request.session, member.has_past or not known, admits)


def heed_standing_answer(member: Member, peer: str, response: StandingResponse) -> None:
    if response.term > member.term:
        member.become_follower(response.term, None)
    if response.session == member.standing.session:
        member.standing.told(peer, has_past=response.has_past, term=response.term, admits=response.admits)


def settle_standing(member: Member) -> None:
    """Where a newcomer has learned enough, it may vote: of the term in which it was caught up, its vote is given."""
    standing = member.standing
    held_index = min(member.committed_index, member.durable_index)
    if not member.has_past and standing.group_is_new:
        standing.newcomer = False
        if member.voters:
            member.election_due_ms = member.draw_election_due()
        else:
            member.start_pre_vote()
    elif member.members_are_decided and standing.is_caught_up(member.term, held_index):
        standing.newcomer = False
        member.voted_for = member.leader_id
