"""The reads of a leader that wait for the proof that it still led when they came [6.4].

Invariant: reads stand in the order in which they came, so the rounds of those that were asked for never fall; what all reads
cost grows with their number and not with its square. Pure."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from dledger.raft.actions import ReadReady
from dledger.raft.progress import Progress
from dledger.raft.turn import Turn


class PendingReads:
    """A round is one question to all followers; who echoes it had, when it was asked, followed nobody else."""

    def __init__(self) -> None:
        self.round = 0
        self._new: list[int] = []
        self._asked: deque[tuple[int, ReadReady]] = deque()

    def add(self, read_id: int) -> None:
        self._new.append(read_id)

    def open_round(self, committed_index: int) -> bool:
        """A new round for all that came since the last one; False when none did."""
        if not self._new:
            return False
        self.round += 1
        self._asked.extend((self.round, ReadReady(read_id, committed_index)) for read_id in self._new)
        self._new.clear()
        return True

    def proven(self, up_to_round: int) -> list[ReadReady]:
        """Those that a quorum's echo of this round answers."""
        ready: list[ReadReady] = []
        while self._asked and self._asked[0][0] <= up_to_round:
            ready.append(self._asked.popleft()[1])
        return ready

    def give_up(self) -> list[ReadReady]:
        """All of them, refused: leadership is gone."""
        waiting = [*(read.read_id for _, read in self._asked), *self._new]
        self._asked.clear()
        self._new.clear()
        return [ReadReady(read_id, None) for read_id in waiting]


class Leader(Protocol):
    """What of a leader is asked and changed here."""

    committed_index: int
    progress: dict[str, Progress]
    reads: PendingReads
    turn: Turn

    @property
    def may_serve(self) -> bool: ...

    @property
    def peers(self) -> tuple[str, ...]: ...

    @property
    def voting(self) -> dict[str, Progress]: ...

    @property
    def quorum(self) -> int: ...

    def send_heartbeat(self, peer: str) -> None: ...


def ask_for_reads(leader: Leader) -> None:
    """Notes the committed index for each new read and opens a round of heartbeats; a quorum's echo
    proves that no later leader had committed anything when the read came [6.4]."""
    if leader.may_serve and leader.reads.open_round(leader.committed_index):
        for peer in leader.peers:
            ask_round(leader, peer)
        finish_reads(leader)


def ask_round(leader: Leader, peer: str) -> None:
    """One round is under way to a follower at a time: its answer brings the next one, for all that came meanwhile."""
    progress = leader.progress[peer]
    if progress.round_sent <= progress.read_round < leader.reads.round:
        leader.send_heartbeat(peer)


def finish_reads(leader: Leader) -> None:
    rounds = sorted([leader.reads.round, *(progress.read_round for progress in leader.voting.values())])
    leader.turn.reads.extend(leader.reads.proven(rounds[-leader.quorum]))
