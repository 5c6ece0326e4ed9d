"""The queue of a member's actions that wait for its disk. Waiting actions share a sync. Pure.

Invariant: no action overtakes a vote that is not durable. No answer to a PUSH, or to a part of a snapshot, overtakes the
entries that it acknowledges. A PersistThenSend, and the actions that wait after it, leave in the order in which they came.
AdvanceLogStart has its own order, because it may free the space for which entries wait. All other actions, such as heartbeats,
do not wait for entries, so a slow disk does not silence its member."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from dledger.raft.actions import Action, PersistThenSend, Reply
from dledger.raft.messages import InstallResponse, PushResponse
from dledger.raft.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """Write the commit index to the checkpoint file. This action comes from the shell and not from the core."""


@dataclass(frozen=True, slots=True)
class SaveSnapshot:
    """Save `snapshot`, the state that this member made of committed entries. With None, in a log without state, write the start
    of the log again, because the snapshot file with this start cannot be read."""

    snapshot: Snapshot | None


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """Move the start of the log to the data file that starts at `position`, and store `note` with it."""

    position: int
    note: bytes = b""


Step = Action | SaveCheckpoint | SaveSnapshot | AdvanceLogStart


class SyncQueue:
    """The queue. One batch at a time is being written; actions that come meanwhile share the next batch."""

    def __init__(self) -> None:
        self._waiting: list[Step] = []
        self._log_starts: deque[AdvanceLogStart] = deque()
        self._unsynced = 0
        """The number of PersistThenSend that wait or are being written."""
        self._votes = 0
        """The number of such PersistThenSend with a vote."""

    def takes(self, step: Step) -> bool:
        """Keeps `step` and returns True if it must wait; returns False if it may be performed now."""
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
        """The next AdvanceLogStart; None if none waits. It only concerns entries that are committed and durable, so it need not
        wait for other steps."""
        return self._log_starts.popleft() if self._log_starts else None

    def synced(self, step: Step) -> None:
        """Called when a step of the batch is durable. The caller performs the step next."""
        self._count(step, -1)

    def reconsidered(self) -> list[Step]:
        """Removes and returns all waiting steps, because some of them only waited for the last batch."""
        for step in self._waiting:
            self._count(step, -1)
        return self.next_batch()

    def _count(self, step: Step, change: int) -> None:
        if isinstance(step, PersistThenSend):
            self._unsynced += change
            self._votes += change * (step.vote is not None)
