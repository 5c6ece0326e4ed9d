"""Retention in some of the sets: old files go on each member by itself, and whoever lacks what went begins anew there.

Invariant: (P5) what goes is decided and old enough by the member's own clock, or another member's log began there before."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulation.cluster.violation import Violation
from simulation.groups.decided import Decided
from simulation.groups.members import Look


@dataclass
class GroupRetention:
    """`kept_s` None: nothing goes."""

    kept_s: int | None
    decided: Decided
    begins: dict[str, int] = field(default_factory=dict)
    """Of each member, where its log began last."""
    known: set[int] = field(default_factory=lambda: {0})
    """Where any did."""
    deleted: int = 0
    restarted: int = 0
    """Logs that began anew where another's did, without having had what is before."""

    def look(self, looks: list[Look]) -> None:
        """Raises Violation. Whose clock is ahead deletes first, and others may begin there a moment later."""
        for each in sorted(looks, key=lambda each: -each.app.store._clock.now_ms()):
            self._look(each)

    def _look(self, look: Look) -> None:
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
        last = next((entry for entry in reversed(self.decided.entries) if entry.position < begin), None)
        if self.kept_s is None or last is None or last.end > self.decided.end:
            raise Violation("P5", f"{look.name} begins at {begin}, {self.decided.end} is decided")
        stored = [record.stored_ms for place, (record, _) in self.decided.records.items() if place < begin]
        now_ms = look.app.store._clock.now_ms()
        if stored and max(stored) + self.kept_s * 1000 > now_ms:
            what = f"what went was stored up to {max(stored)}, it is {now_ms}"
            raise Violation("P5", f"{look.name} begins at {begin}: {what}")

    def stop(self, looks: list[Look]) -> None:
        """Nothing more goes, so that what is left can be compared."""
        for look in looks:
            look.app.settings.file_reserved_seconds = 10**6
