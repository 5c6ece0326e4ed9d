"""What a leader knows of one follower, and what it has under way to it.

Invariant: `in_flight` and a `round_sent` above `read_round` belong to calls whose end, an answer or a failure, is still to be
told; so nothing waits for a message that nobody carries. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from dledger.entry import NO_INDEX
from dledger.messages import PushRequest, PushResponse
from dledger.raftlog import RaftLog


@dataclass(slots=True)
class Progress:
    """`next_index` begins at the leader's end."""

    next_index: int
    match_index: int = NO_INDEX
    """The follower's log is durable and equal to the leader's up to here."""
    commit_index_sent: int = NO_INDEX
    probing: bool = False
    """The logs are known to differ at next_index - 1: look for the last common entry before sending
    bodies."""
    in_flight: PushRequest | None = None
    held: bool = False
    """The last PUSH failed: the next one goes out when the follower is heard, or with the next beat."""
    sent_ms: int = 0
    heard_ms: int = 0
    round_sent: int = 0
    read_round: int = 0
    """The last round that it echoed; one that was sent later is under way."""

    def heard(self, now_ms: int) -> None:
        """The follower answered something."""
        self.heard_ms = now_ms
        self.held = False

    def pushing(self, push: PushRequest, now_ms: int) -> None:
        self.in_flight = push
        self.sent_ms = now_ms
        self.commit_index_sent = push.commit_index

    def not_pushed(self) -> None:
        """Whether the PUSH under way arrived is not known; what it carried is to be sent again."""
        self.in_flight = None
        self.commit_index_sent = NO_INDEX


def back_up(log: RaftLog, response: PushResponse) -> int:
    """Where the leader's log and that of a follower which found a mismatch may meet: after the follower's end, after our last
    entry of its conflicting term, or before that term."""
    compared = response.index - 1
    if response.end_index < compared:
        return response.end_index + 1
    last = log.last_index_up_to_term(response.x_term, before=compared)
    if last >= response.x_index and log.term_at(last) == response.x_term:
        return last + 1
    return min(max(response.x_index, 0), compared)
