"""What was decided before this process got it: whoever reports when a thing was decided cannot have seen that.

Invariant: `decided_end` never falls; an entry above it came undecided. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.raft.actions import Action, PersistThenSend
from dledger.raft.entries import Entries
from dledger.raft.messages import Message, PushRequest


class Arrivals:
    """`decided_end` begins at the end of what the disk held, which does not say what was decided."""

    def __init__(self, decided_end: int) -> None:
        self.decided_end = decided_end

    def received(self, message: Message, actions: Sequence[Action]) -> None:
        """`actions` are what the core made of `message`: new entries may come with a commit index beyond them."""
        if isinstance(message, PushRequest):
            for action in actions:
                if isinstance(action, PersistThenSend) and action.entries:
                    already = min(message.commit_index, Entries.of(action.entries).last_index)
                    self.decided_end = max(self.decided_end, already)
