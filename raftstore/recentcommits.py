"""The commit index of a moment ago. A member that holds this index counts as caught up, although newer entries are on their way
to it.

Invariant: the returned index is at least the commit index of `LATELY_MS` ago. Pure."""

from __future__ import annotations

from collections import deque
from itertools import islice

from dledger.raft.entries import NO_INDEX

LATELY_MS = 1_000
APART_MS = 50


class RecentCommits:
    """Keeps the commit indexes of the last `LATELY_MS`, noted at least `APART_MS` apart, and the newest older one."""

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
        """The commit index of a moment ago; NO_INDEX before any commit is known."""
        self._forget(now_ms)
        return self._notes[0][1] if self._notes else NO_INDEX

    def _forget(self, now_ms: int) -> None:
        """Drop all notes before the newest note that is at least `LATELY_MS` old."""
        notes = self._notes
        old = sum(1 for at_ms, _ in islice(notes, 1, None) if at_ms <= now_ms - LATELY_MS)
        for _ in range(old):
            notes.popleft()
