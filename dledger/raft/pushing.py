"""What a leader sends to one follower when something moved: all that it lacks and that there is room for.

Invariant: it ends, for each PUSH takes room that only its end gives back, and of a read or a snapshot's part one is under way.
Pure."""

from __future__ import annotations

from typing import Protocol

from dledger.raft.actions import Load, LoadChunk
from dledger.raft.installing import Loaded
from dledger.raft.log import RaftLog
from dledger.raft.messages import Request
from dledger.raft.progress import Progress
from dledger.raft.settings import DLedgerSettings
from dledger.raft.turn import Turn


class Leader(Protocol):
    """What of a leader is asked and changed here."""

    now_ms: int
    term: int
    committed_index: int
    log: RaftLog
    settings: DLedgerSettings
    progress: dict[str, Progress]
    turn: Turn

    def send(self, to: str, request: Request) -> None: ...


def push_what_it_lacks(leader: Leader, peer: str, loaded: Loaded) -> None:
    """`loaded` is what was read for `peer`, if anything was."""
    state = leader.term, leader.committed_index, leader.now_ms, leader.log, leader.settings
    progress = leader.progress[peer]
    others = sum(known.in_flight.size for known in leader.progress.values()) - progress.in_flight.size
    while (work := progress.begin(peer, *state, loaded, others + progress.in_flight.size)) is not None:
        if isinstance(work, Load | LoadChunk):
            leader.turn.loads.append(work)
            return
        leader.send(peer, work)
        loaded = ()
