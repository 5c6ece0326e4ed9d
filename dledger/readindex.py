"""The reads of a leader that wait for the proof that it still led when they came [6.4].

Invariant: reads stand in the order in which they came, so the rounds of those that were asked for never fall; what all reads
cost grows with their number and not with its square. Pure."""

from __future__ import annotations

from collections import deque

from dledger.actions import ReadReady


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
