"""What waits for a member's disk, and what need not.

Invariant: nothing passes a vote that is not durable, and no answer to a PUSH, or to a snapshot, what it says is held;
PersistThenSend and what waits behind it come out in the order in which they went in; AdvanceLogStart by themselves, for they may
make the room that entries wait for. All else, heartbeats and their answers above all, waits for no entries: however slow a disk is,
its member is heard. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from dledger.raft.actions import Action, PersistThenSend, Reply
from dledger.raft.messages import InstallResponse, PushResponse
from dledger.raft.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """An action of the shell's own: note in the checkpoint file how far the log is decided."""


@dataclass(frozen=True, slots=True)
class SaveSnapshot:
    """Another one: what this member made of entries that are decided; None: of a log that holds no state, where it begins, for
    the one that says so cannot be read."""

    snapshot: Snapshot | None


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """And a third: let the log begin with the data file that starts at `position`, and keep `note` with that."""

    position: int
    note: bytes = b""


Step = Action | SaveCheckpoint | SaveSnapshot | AdvanceLogStart


class SyncQueue:
    """One batch at a time is at the disk; what comes meanwhile shares the next."""

    def __init__(self) -> None:
        self._waiting: list[Step] = []
        self._log_start: deque[AdvanceLogStart] = deque()
        self._unsynced = 0
        """PersistThenSend that wait or are at the disk, ..."""
        self._votes = 0
        """... and those of them that carry a vote."""

    def takes(self, step: Step) -> bool:
        """Keeps `step` if it must wait; False when it is to be performed now."""
        if not self.must_wait(step):
            return False
        if isinstance(step, AdvanceLogStart):
            self._log_start.append(step)
            return True
        self._waiting.append(step)
        self._count(step, 1)
        return True

    @property
    def wants_the_disk(self) -> bool:
        return bool(self._waiting or self._log_start)

    def must_wait(self, step: Step) -> bool:
        match step:
            case PersistThenSend() | SaveCheckpoint() | SaveSnapshot() | AdvanceLogStart():
                return True
            case Reply(response=PushResponse() | InstallResponse()):
                return self._unsynced > 0
        return self._votes > 0

    def next_batch(self) -> list[Step]:
        """All that waits, for one sync."""
        batch, self._waiting = self._waiting, []
        return batch

    def next_log_start(self) -> AdvanceLogStart | None:
        """What it tells is decided and durable, so nothing that waits need be before it."""
        return self._log_start.popleft() if self._log_start else None

    def synced(self, step: Step) -> None:
        """One step of a batch is durable and is about to be performed."""
        self._count(step, -1)

    def reconsidered(self) -> list[Step]:
        """All that waits, given back: of what waited for the last batch, some need not wait for the next."""
        for step in self._waiting:
            self._count(step, -1)
        return self.next_batch()

    def _count(self, step: Step, change: int) -> None:
        if isinstance(step, PersistThenSend):
            self._unsynced += change
            self._votes += change * (step.vote is not None)
