"""The commit index of a moment ago: a member that holds it is caught up, though more is on its way to it.

Invariant: the returned index was committed `LATELY_MS` before, or is a later one. Pure."""

from __future__ import annotations

from collections import deque
from itertools import islice

from dledger.raft.entries import NO_INDEX

LATELY_MS = 1_000
APART_MS = 50


class RecentCommits:
    """Keeps only the notes that fit into a moment, `APART_MS` apart."""

    def __init__(self) -> None:
        self._notes: deque[tuple[int, int]] = deque()

    def note(self, index: int, now_ms: int) -> None:
        """Note that everything up to `index` is committed now."""
        notes = self._notes
        if len(notes) > 1 and now_ms - notes[-2][0] < APART_MS:
            notes.pop()
        notes.append((now_ms, index))
        self._forget(now_ms)

    def index(self, now_ms: int) -> int:
        """NO_INDEX before any commit is known."""
        self._forget(now_ms)
        return self._notes[0][1] if self._notes else NO_INDEX

    def _forget(self, now_ms: int) -> None:
        """Drop the notes before the newest of the old enough ones."""
        notes = self._notes
        old = sum(1 for at_ms, _ in islice(notes, 1, None) if at_ms <= now_ms - LATELY_MS)
        for _ in range(old):
            notes.popleft()
