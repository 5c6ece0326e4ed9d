"""A leadership on its way from a leader to one follower [3.10].

Invariant: while it is `under_way` the leader takes no proposals; it ends with the leadership, or given up at `due_ms`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dledger.raft.messages import ResultCode, TransferRequest
from dledger.raft.progress import Progress
from dledger.raft.settings import DLedgerSettings


class Transfer:
    """That of one leader."""

    def __init__(self) -> None:
        self.target: str | None = None
        self.asked = False
        self.due_ms = 0

    @property
    def under_way(self) -> bool:
        return self.target is not None

    def begin(self, target: str, due_ms: int) -> None:
        self.target, self.asked, self.due_ms = target, False, due_ms

    def end(self) -> None:
        self.target = None

    def request(
        self, leader: str, term: int, end: int, progress: Mapping[str, Progress]
    ) -> TransferRequest | None:
        """What the target is to be told, once it holds all up to `end`, the end of the leader's log; once only."""
        if self.target is None or self.asked or progress[self.target].match_index < end:
            return None
        self.asked = True
        return TransferRequest(term, leader, self.target, end)


def judged(
    request: TransferRequest, own_id: str | None, term: int, last_index: int, *, may_stand: bool
) -> ResultCode:
    """Whether the transferee, `own_id` if the leader that it follows asks, stands for election at once."""
    if request.transferee_id != own_id:
        return ResultCode.INCONSISTENT_LEADER
    if request.term != term:
        return ResultCode.INCONSISTENT_TERM
    return (
        ResultCode.SUCCESS
        if last_index >= request.take_index and may_stand
        else ResultCode.TAKE_LEADERSHIP_FAILED
    )


def fittest(progress: Mapping[str, Progress], heard_since_ms: int) -> str | None:
    """Who holds most of those that were heard lately and may be elected."""
    heard = [peer for peer, known in progress.items() if known.votes_since(heard_since_ms)]
    return max(heard, key=lambda peer: progress[peer].match_index, default=None)


class Leader(Protocol):
    """What of a leader is asked and changed here."""

    now_ms: int
    settings: DLedgerSettings
    progress: dict[str, Progress]
    transfer: Transfer

    @property
    def voting(self) -> dict[str, Progress]: ...

    def give_up_transfer(self) -> None: ...

    def ask_transferee(self) -> None: ...


def begin_transfer(leader: Leader, target: str | None) -> None:
    """To `target`, or to the fittest. A leader whose disk hangs does so by itself: that is no place to lead from."""
    if leader.transfer.under_way:
        return
    since_ms = leader.now_ms - leader.settings.election_timeout_min_ms
    target = target or fittest(leader.voting, since_ms)
    if target is None or target not in leader.voting or leader.progress[target].newcomer:
        leader.give_up_transfer()
    else:
        leader.transfer.begin(target, leader.now_ms + leader.settings.election_timeout_min_ms)
        leader.ask_transferee()
