"""Retention in some of the Raft-mode sets. Each member deletes old files by itself. A member that is missing entries which the
others have deleted begins its log again where another member's log begins.

Invariant (P5): deleted entries are committed and old enough by the member's own clock, or another member's log began at that
place before."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from simulation.groups.committed import CommittedLog
from simulation.groups.members import Look
from simulation.kernel.violation import Violation

ROUND_MS = 2_000
"""A round of retention ends within this time."""


@dataclass
class GroupRetention:
    """The check of retention. If `kept_s` is None, nothing is deleted."""

    kept_s: int | None
    committed: CommittedLog
    begins: dict[str, int] = field(default_factory=dict)
    """For each member: where its log began at the last look."""
    known: set[int] = field(default_factory=lambda: {0})
    """All places where a log began."""
    clocks: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)
    """For each member: its monotonic and wall clock at the looks of the last ROUND_MS."""
    deleted: int = 0
    restarted: int = 0
    """Logs that began again where another log begins, without having had the entries before."""

    def look(self, looks: list[Look]) -> None:
        """Check where logs begin. A member whose clock is ahead deletes first, and other logs may begin there a moment later.
        Raises Violation."""
        for each in sorted(looks, key=lambda each: -each.app.store._clock.now_ms()):
            self._look(each)

    def _latest_ms(self, look: Look) -> int:
        """The latest time that the member's wall clock showed during a round that may have just ended. The clock may have
        jumped back since."""
        clock, read = look.app.store._clock, self.clocks.setdefault(look.name, deque())
        read.append((clock.monotonic_ms(), clock.now_ms()))
        while read[0][0] < read[-1][0] - ROUND_MS:
            read.popleft()
        return max(wall_ms for _, wall_ms in read)

    def _look(self, look: Look) -> None:
        now_ms = self._latest_ms(look)
        begin = look.raft.log_begin()
        before = self.begins.get(look.name, 0)
        if begin == before:
            return
        self.begins[look.name] = begin
        if begin < before:
            return  # its disk was lost
        if begin in self.known:
            self.restarted += 1
            return
        self.known.add(begin)
        self.deleted += 1
        last = next((entry for entry in reversed(self.committed.entries) if entry.position < begin), None)
        if self.kept_s is None or last is None or last.end > self.committed.end:
            raise Violation("P5", f"{look.name} begins at {begin}, committed is {self.committed.end}")
        stored = [record.stored_ms for place, (record, _) in self.committed.records.items() if place < begin]
        if stored and max(stored) + self.kept_s * 1000 > now_ms:
            what = f"deleted messages were stored up to {max(stored)}, it is {now_ms}"
            raise Violation("P5", f"{look.name} begins at {begin}: {what}")

    def stop(self, looks: list[Look]) -> None:
        """Stop deletion, so that the rest can be compared."""
        for look in looks:
            look.app.settings.file_reserved_seconds = 10**6
