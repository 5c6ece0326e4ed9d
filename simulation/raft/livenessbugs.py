"""Bugs of timing, planted into the members of a group for the length of a run, to prove that the checks find them.

Invariant: each breaks what its line says and nothing else, and nothing is left of it when its context ends.
Three are found by scenarios of tests/simulation/test_raft_group.py, all others by seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar
from unittest.mock import patch

from dledger.actions import Action, PersistThenSend, Reply
from dledger.ballots import Ballots
from dledger.disklane import DiskLane, Step
from dledger.messages import (
    HeartBeatResponse,
    PushResponse,
    Request,
    ResultCode,
    TransferRequest,
    VoteResponse,
    VoteResult,
)
from dledger.node import DLedgerNode
from dledger.raft import Raft

Wrong = TypeVar("Wrong")

LIVENESS_BUGS: dict[str, list[tuple[type, str, object]]] = {}
"""Name of a bug -> what is replaced, where, and by what."""


def bug(name: str, owner: type, attribute: str) -> Callable[[Wrong], Wrong]:
    """The function stands in for `owner`'s while the bug is planted; a bug may have several."""

    def noted(wrong: Wrong) -> Wrong:
        LIVENESS_BUGS.setdefault(name, []).append((owner, attribute, wrong))
        return wrong

    return noted


@contextmanager
def planted(name: str) -> Iterator[None]:
    with ExitStack() as patches:
        for owner, attribute, wrong in LIVENESS_BUGS[name]:
            patches.enter_context(patch.object(owner, attribute, wrong))
        yield


must_wait = DiskLane.must_wait
turned = Raft.actions
counted = Ballots.count


def answers(step: object, kind: type) -> bool:
    return isinstance(step, Reply) and isinstance(step.response, kind)


@bug("heartbeat-answered-before-vote", Raft, "actions")
def heartbeats_first(self: Raft) -> list[Action]:
    """The answer to a leader of a new term leaves before that term is durable."""
    actions: list[Action] = []
    for action in turned(self):
        if isinstance(action, PersistThenSend):
            actions += [message for message in action.messages if answers(message, HeartBeatResponse)]
        actions.append(action)
    return actions


@bug("heartbeat-answered-before-vote", DiskLane, "must_wait")
def but_for_heartbeats(self: DiskLane, step: Step) -> bool:
    return not answers(step, HeartBeatResponse) and must_wait(self, step)


@bug("push-answered-before-entries", DiskLane, "must_wait")
def but_for_pushes(self: DiskLane, step: Step) -> bool:
    """A repeated push is answered while the first one's entries are on their way to the disk."""
    return self._votes > 0 if answers(step, PushResponse) else must_wait(self, step)


@bug("late-pre-vote-counts", Ballots, "count")
def pre_votes_too(self: Ballots, voter: str, response: VoteResponse, term: int) -> None:
    """A pre-vote that comes when the election has begun counts as a vote."""
    counted(self, voter, response, term)
    if self.votes and response.result is VoteResult.ACCEPT and response.ballot_term == term:
        self.votes.add(voter)


@bug("transfer-of-any-term", Raft, "on_transfer_request")
def whoever_asks(self: Raft, leader: str, request: TransferRequest) -> ResultCode:
    """A leader long deposed makes a member stand for election."""
    self.start_election(transfer=True)
    return ResultCode.SUCCESS


@bug("dropped-push-in-flight", Raft, "unsent")
def believed_sent(self: Raft, peer: str, request: Request, now_ms: int) -> list[Action]:
    """What was not sent is waited for."""
    return []


@bug("ended-connection-is-a-dead-leader", Raft, "connection_lost")
def taken_for_dead(self: Raft, peer: str, now_ms: int) -> list[Action]:
    """The leader is not asked whether it leads."""
    self.now_ms = now_ms
    if peer == self.leader_id:
        self.leader_sign.doubted = True
        self.leader_is_gone()
    return self.actions()


def what_is_applied(self: DLedgerNode) -> int:
    """The checkpoint calls decided what the own disk has not got yet."""
    return self.applied_index


bug("checkpoint-ahead-of-disk", DLedgerNode, "_decided_and_durable")(property(what_is_applied))
