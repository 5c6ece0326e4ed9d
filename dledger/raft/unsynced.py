"""How far a member's own disk has followed its log.

Invariant: what `confirmed` has not covered counts as lost; a cut takes back what was still to be confirmed above it. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class Pending:
    """A PersistThenSend that is not confirmed yet: where the log ended then, and whether it has a vote."""

    end: int
    vote: bool


class Unsynced:
    """`durable_index` is the end of the log that the disk surely has."""

    def __init__(self, durable_index: int, now_ms: int) -> None:
        self.durable_index = durable_index
        self._pending: deque[Pending] = deque()
        self._heard_ms = now_ms

    @property
    def has_vote(self) -> bool:
        """A vote, or a term, is on its way to the disk, and nothing is heard of this member until it is there."""
        return any(waiting.vote for waiting in self._pending)

    def waits(self, end: int, *, vote: bool, now_ms: int) -> None:
        if not self._pending:
            self._heard_ms = now_ms
        self._pending.append(Pending(end, vote))

    def confirmed(self, now_ms: int) -> Pending:
        """The oldest that waits is durable."""
        self._heard_ms = now_ms
        oldest = self._pending.popleft()
        self.durable_index = max(self.durable_index, oldest.end)
        return oldest

    def cut(self, index: int) -> None:
        """Entries from `index` on are no more."""
        self.durable_index = min(self.durable_index, index - 1)
        for waiting in self._pending:
            waiting.end = min(waiting.end, index - 1)

    def silent_ms(self, now_ms: int) -> int:
        """For how long the disk has owed an answer."""
        return now_ms - self._heard_ms if self._pending else 0
