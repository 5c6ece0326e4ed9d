"""The queue of a member's actions that wait for its disk, and share a sync. Pure.

Invariant: no action passes a vote that is not durable. No answer to a PUSH, or to a snapshot, passes the entries that it
acknowledges. PersistThenSend, and actions that wait behind it, leave in the order in which they came. AdvanceLogStart has an
order of its own, because it may make the room that entries wait for. All other actions, heartbeats above all, wait for no
entries: a slow disk does not silence its member."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from dledger.raft.actions import Action, PersistThenSend, Reply
from dledger.raft.messages import InstallResponse, PushResponse
from dledger.raft.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """An action of the shell's own: write the commit index to the checkpoint file."""


@dataclass(frozen=True, slots=True)
class SaveSnapshot:
    """Save the state that this member made of committed entries. None, in a log without state: save where the log begins,
    because the snapshot that says so cannot be read."""

    snapshot: Snapshot | None


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """Let the log begin with the data file that starts at `position`, and keep `note` with that."""

    position: int
    note: bytes = b""


Step = Action | SaveCheckpoint | SaveSnapshot | AdvanceLogStart


class SyncQueue:
    """One batch at a time is at the disk; actions that come meanwhile share the next batch."""

    def __init__(self) -> None:
        self._waiting: list[Step] = []
        self._log_starts: deque[AdvanceLogStart] = deque()
        self._unsynced = 0
        """Number of PersistThenSend that wait or are at the disk."""
        self._votes = 0
        """Number of those with a vote."""

    def takes(self, step: Step) -> bool:
        """Keeps `step` if it must wait. False: perform it now."""
        if not self.must_wait(step):
            return False
        if isinstance(step, AdvanceLogStart):
            self._log_starts.append(step)
            return True
        self._waiting.append(step)
        self._count(step, 1)
        return True

    @property
    def wants_the_disk(self) -> bool:
        return bool(self._waiting or self._log_starts)

    def must_wait(self, step: Step) -> bool:
        match step:
            case PersistThenSend() | SaveCheckpoint() | SaveSnapshot() | AdvanceLogStart():
                return True
            case Reply(response=PushResponse() | InstallResponse()):
                return self._unsynced > 0
        return self._votes > 0

    def next_batch(self) -> list[Step]:
        """All waiting steps, for one sync."""
        batch, self._waiting = self._waiting, []
        return batch

    def next_log_start(self) -> AdvanceLogStart | None:
        """It is about entries that are committed and durable, so no waiting step must come first."""
        return self._log_starts.popleft() if self._log_starts else None

    def synced(self, step: Step) -> None:
        """A step of the batch is durable; it is performed next."""
        self._count(step, -1)

    def reconsidered(self) -> list[Step]:
        """Takes all waiting steps out: some of them waited for the last batch only."""
        for step in self._waiting:
            self._count(step, -1)
        return self.next_batch()

    def _count(self, step: Step, change: int) -> None:
        if isinstance(step, PersistThenSend):
            self._unsynced += change
            self._votes += change * (step.vote is not None)
