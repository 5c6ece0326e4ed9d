"""Compares the outcomes of a soak's sends with the messages that a consumer reads during the run, and with the messages that
are left at its end.

Invariant: a message has its own number and is sent once. Memory holds only the part of a queue that retention has left, and
one byte for each earlier message, so a run of hours takes little memory. Offsets are positions in a queue; times are wall
clock ms. Pure."""

from __future__ import annotations

from array import array
from collections import Counter
from enum import StrEnum

from localcluster.history import SendOutcome

LINES_MAX = 50
UNDER_WAY, OUTCOME_BITS, READ, DELAYED = 0, 0b11, 0b100, 0b1000
CODES = {SendOutcome.ACKNOWLEDGED: 1, SendOutcome.REFUSED: 2, SendOutcome.UNKNOWN: 3}
ACKNOWLEDGED, REFUSED = CODES[SendOutcome.ACKNOWLEDGED], CODES[SendOutcome.REFUSED]


class Fault(StrEnum):
    """A promise that was broken."""

    LOST = "lost"
    CHANGED = "changed"
    MOVED = "moved"
    DUPLICATED = "duplicated"
    REFUSED_PRESENT = "refused, yet present"
    STRANGER = "never sent, yet present"
    GAP = "gap in a queue"
    TOO_YOUNG = "removed too young"
    TAKEN_BACK = "read, then taken back"


class Faults:
    """The counts of faults, and readable lines for the first LINES_MAX."""

    def __init__(self) -> None:
        self.counts: Counter[Fault] = Counter()
        self.lines: list[str] = []

    def add(self, fault: Fault, line: str) -> None:
        self.counts[fault] += 1
        if len(self.lines) < LINES_MAX:
            self.lines.append(f"{fault}: {line}")


class QueueAccount:
    """One queue from offset `base` on. Numbers are stored increased by one; 0 means none."""

    def __init__(self, name: str, faults: Faults, reserved_ms: int) -> None:
        self.name = name
        self.base = 0
        self.removed_unread = 0
        """Acknowledged messages that were old enough, so that retention removed them before the consumer reached them."""
        self._faults = faults
        self._reserved_ms = reserved_ms
        self._base_seen_ms = 0
        self._acknowledged = array("I")
        self._read = array("I")
        self._began_ms = array("Q")

    def acknowledge(self, offset: int, number: int, began_ms: int) -> None:
        """The broker acknowledged the message at `offset`; its send began at `began_ms`."""
        if offset < self.base:
            self._judge_age(offset, began_ms, self._base_seen_ms)
            return
        at = self._room(offset)
        if self._acknowledged[at]:
            self._lost(self._acknowledged[at] - 1, offset, f"where {number} was acknowledged later")
        self._acknowledged[at] = number + 1
        self._began_ms[at] = began_ms
        if self._read[at]:
            self._compare(offset, number, self._read[at] - 1)

    def read(self, offset: int, number: int) -> None:
        """The consumer found the message at `offset`."""
        if offset < self.base:
            return
        at = self._room(offset)
        self._read[at] = number + 1
        if self._acknowledged[at]:
            self._compare(offset, self._acknowledged[at] - 1, number)

    def begin_at(self, offset: int, seen_ms: int) -> None:
        """Note that the queue began at this offset at `seen_ms`. If the offset is below the known beginning, because a replica
        has kept more, nothing changes."""
        if offset <= self.base:
            return
        gone = min(offset - self.base, len(self._acknowledged))
        for at in range(gone):
            if self._acknowledged[at]:
                self._judge_age(self.base + at, self._began_ms[at], seen_ms)
                self.removed_unread += not self._read[at]
        for kept in (self._acknowledged, self._read, self._began_ms):
            del kept[:gone]
        self.base, self._base_seen_ms = offset, seen_ms

    def judge_retained(self, begin: int, end: int, found: dict[int, int]) -> int:
        """Judge the messages that are left at the end of the run. `found` maps each offset of [begin, end) to a message's
        number. Returns how many acknowledged messages are there."""
        present = 0
        for at, acknowledged in enumerate(self._acknowledged):
            offset, number, read = self.base + at, acknowledged - 1, self._read[at] - 1
            now = found.get(offset)
            if acknowledged and now == number:
                present += 1
            elif acknowledged and (now is not None or offset >= begin):
                self._lost(
                    number, offset, "which the queue does not hold" if now is None else f"where {now} is"
                )
            elif not acknowledged and read >= 0 and now != read and offset >= begin:
                self._faults.add(Fault.TAKEN_BACK, f"{read} at {self.name}@{offset}")
        for offset in range(max(begin, self.base), end):
            if offset not in found:
                self._faults.add(Fault.GAP, f"{self.name}@{offset}")
        return present

    def _compare(self, offset: int, acknowledged: int, read: int) -> None:
        if acknowledged != read:
            self._lost(acknowledged, offset, f"where {read} was read")

    def _judge_age(self, offset: int, began_ms: int, seen_ms: int) -> None:
        age_ms = seen_ms - began_ms
        if age_ms < self._reserved_ms:
            self._faults.add(Fault.TOO_YOUNG, f"{self.name}@{offset} after {age_ms} ms")

    def _lost(self, number: int, offset: int, why: str) -> None:
        self._faults.add(Fault.LOST, f"{number} was acknowledged at {self.name}@{offset}, {why}")

    def _room(self, offset: int) -> int:
        at = offset - self.base
        missing = at + 1 - len(self._acknowledged)
        if missing > 0:
            for kept in (self._acknowledged, self._read, self._began_ms):
                kept.extend([0] * missing)
        return at


class Book:
    """All messages of a run. The log is kept for at least `reserved_ms`.

    A delayed message enters its queue after the delay, and its sender does not get the offset there. So only its arrival can be
    checked. They may arrive twice, if a failover happens between a delivery and its record."""

    def __init__(self, reserved_ms: int) -> None:
        self.faults = Faults()
        self.outcomes: Counter[SendOutcome] = Counter()
        self.read_count = 0
        self.delayed_twice = 0
        self.delayed_late_ms = 0
        """The greatest time by which a delayed message was late."""
        self.queues: dict[str, QueueAccount] = {}
        self.awaited: dict[int, int] = {}
        """Acknowledged delayed messages that have not arrived -> their due times."""
        self._reserved_ms = reserved_ms
        self._states = bytearray()

    def begin(self) -> int:
        """Begin a send, and return the number of its message."""
        self._states.append(UNDER_WAY)
        return len(self._states) - 1

    def queue(self, name: str) -> QueueAccount:
        if name not in self.queues:
            self.queues[name] = QueueAccount(name, self.faults, self._reserved_ms)
        return self.queues[name]

    def end(self, number: int, outcome: SendOutcome) -> None:
        """Record the outcome of the send."""
        self._states[number] |= CODES[outcome]
        self.outcomes[outcome] += 1
        self._judge_refused(number)

    def end_delayed(self, number: int, outcome: SendOutcome, due_ms: int) -> None:
        self._states[number] |= DELAYED
        self.end(number, outcome)
        if outcome is SendOutcome.ACKNOWLEDGED and not self._states[number] & READ:
            self.awaited[number] = due_ms

    def read(self, queue: str, offset: int, number: int | None, *, whole: bool, now_ms: int) -> None:
        """The consumer, which passes each offset once, found message `number` at this offset, or None for a message of another
        run. `whole` says whether the body is the one that was sent."""
        self.read_count += 1
        place = f"{queue}@{offset}"
        if number is None or number >= len(self._states):
            self.faults.add(Fault.STRANGER, place)
            return
        if not whole:
            self.faults.add(Fault.CHANGED, f"{number} at {place}")
        if self._states[number] & READ:
            if self._states[number] & DELAYED:
                self.delayed_twice += 1
            else:
                self.faults.add(Fault.DUPLICATED, f"{number} at {place}")
        self._states[number] |= READ
        due_ms = self.awaited.pop(number, now_ms)
        self.delayed_late_ms = max(self.delayed_late_ms, now_ms - due_ms)
        self._judge_refused(number)

    def give_up_awaited(self, passed_over: int) -> None:
        """Reading has ended, so missing delayed messages are lost, except `passed_over` messages, which retention removed
        before the consumer reached them."""
        for number in sorted(self.awaited)[passed_over:]:
            self.faults.add(Fault.LOST, f"{number}, which was delayed, did not come")

    def _judge_refused(self, number: int) -> None:
        state = self._states[number]
        if state & OUTCOME_BITS == REFUSED and state & READ:
            self.faults.add(Fault.REFUSED_PRESENT, f"{number}")
