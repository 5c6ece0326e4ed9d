"""What one input made necessary, put in order.

Invariant: what is to be durable first stands before, or inside, what makes it visible. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dledger.raft.actions import (
    Action,
    Forgot,
    Load,
    LoadChunk,
    PersistThenSend,
    ReadReady,
    Reply,
    Restore,
    Send,
    TransferFailed,
    Vote,
)
from dledger.raft.entries import Entries
from dledger.raft.snapshot import Snapshot


@dataclass(slots=True)
class Turn:
    """Filled while an input is dealt with, then ended by `actions`."""

    messages: list[Send | Reply] = field(default_factory=list)
    snapshot: Snapshot | None = None
    """It replaced the log."""
    cut_from: int | None = None
    entries: Entries = field(default_factory=Entries)
    reads: list[ReadReady] = field(default_factory=list)
    loads: list[Load | LoadChunk] = field(default_factory=list)
    transfer_failed: bool = False
    forgot: Forgot | None = None

    def persists(self, vote: Vote | None) -> bool:
        """Whether something is to be made durable."""
        changed = self.snapshot is not None or self.cut_from is not None or bool(self.entries)
        return vote is not None or changed

    def actions(self, vote: Vote | None, told: Sequence[Action], *, leads: bool) -> list[Action]:
        """`vote` is a new one; `told` says what else changed. A leader's messages do not wait for its own entries [10.2.1]."""
        messages: list[Action] = [*self.messages]
        if self.persists(vote):
            first = leads and vote is None
            step = PersistThenSend(
                vote, self.cut_from, self.entries, () if first else tuple(self.messages), self.snapshot
            )
            messages = [*messages, step] if first else [step]
        restored = [] if self.snapshot is None else [Restore(self.snapshot)]
        failed: list[Action] = [TransferFailed()] if self.transfer_failed else []
        forgot = [] if self.forgot is None else [self.forgot]
        return [*messages, *restored, *told, *self.reads, *self.loads, *failed, *forgot]
