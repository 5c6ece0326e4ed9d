"""The invariants of a pair, checked at every step.

P1 a slave's log is a part of one history of its master's log (see below): one log never has bytes of two histories P2 when a
SYNC_MASTER answers OK, some slave has held the message P3 no broker shows more than it holds: dispatched <= confirmed <= the
log's end; a truncation lowers them one after the other, and meanwhile the bytes between them are only the rest of a segment

A history is the log that one broker wrote as master. A master that lost its tail begins another history at its new end."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from messagestore.store.brokerstore import BrokerStore
from simulation.kernel.violation import Violation

BLANK = struct.Struct(">iI")


@dataclass
class Span:
    start: int
    end: int


@dataclass
class Watched:
    """One slave's log: how far it was compared, and with which history."""

    checked_end: int = 0
    history: int = 0


@dataclass
class PairCheck:
    """The check of a pair. It gets the stores of running brokers."""

    histories: list[bytearray] = field(default_factory=lambda: [bytearray()])
    held: list[Span] = field(default_factory=list)  # spans of the present history that any slave ever held
    broken: Violation | None = None
    watched: dict[str, Watched] = field(default_factory=dict)

    @property
    def held_end(self) -> int:
        return max((span.end for span in self.held), default=0)

    def leads(self, store: BrokerStore) -> None:
        """Called when a process becomes master with this log. If the log is missing bytes of the present history, or has other
        bytes, a new history begins there."""
        begins = store.min_offset()
        log = bytes(self.histories[-1][:begins]) + content(store, begins, store.max_offset())
        if log[: len(self.histories[-1])] != self.histories[-1]:
            self.histories.append(bytearray(log))
            end = common(self.histories[-2], log)
            self.held = [Span(span.start, min(span.end, end)) for span in self.held if span.start < end]

    def wrote(self, store: BrokerStore) -> None:
        """Add to the present history what the master's log has grown by."""
        known = self.histories[-1]
        if not store.has_segments():  # no segments yet, or the broker stops
            return
        known += content(store, len(known), store.max_offset())

    def holds(self, store: BrokerStore) -> None:
        """Called for a slave's log at every step. It notes how much of the present history some slave has ever held."""
        if not store.has_segments():
            return
        history = self.histories[-1]
        start, end = store.min_offset(), min(store.max_offset(), len(history))
        span = next((span for span in self.held if span.start <= start <= span.end), None)
        at = start if span is None else span.end
        if end <= at or content(store, at, end) != history[at:end]:
            return
        if span is None:
            self.held.append(Span(start, end))
        else:
            span.end = end

    def answered(self, end: int) -> None:
        """A SYNC_MASTER answers OK to a send that ends at this offset. A violation is raised at the next look, not during the
        broker's work."""
        if not any(span.start < end <= span.end for span in self.held):
            why = f"a send that ends at {end} is answered OK, slaves have only held {self.held}"
            self.broken = self.broken or Violation("P2", why)

    def shows(self, name: str, store: BrokerStore) -> None:
        dispatched, confirm, end = store.dispatched_offset(), store.confirm_offset(), store.max_offset()
        confirmed = max(confirm, store.min_offset())
        shown = dispatched > confirmed and not is_rest_of_segment(content(store, confirmed, dispatched))
        if shown or confirm > end:
            raise Violation("P3", f"{name} has dispatched {dispatched}, confirmed {confirm}, ends at {end}")

    def is_of_one_log(self, name: str, store: BrokerStore) -> None:
        watched = self.watched.setdefault(name, Watched())
        if not store.has_segments():
            return
        begins, end = store.min_offset(), store.max_offset()
        if end < watched.checked_end or begins > watched.checked_end:
            watched.checked_end = begins
        at = watched.checked_end
        if content(store, at, end) == self.histories[watched.history][at:end]:
            watched.checked_end = end
            return
        for number, history in enumerate(self.histories):
            if content(store, begins, end) == history[begins:end]:
                watched.history, watched.checked_end = number, end
                return
        raise Violation("P1", f"{name} holds bytes in [{begins}, {end}) that are no part of any one history")


def content(store: BrokerStore, start: int, end: int) -> bytes:
    parts = []
    while start < end:
        view = store.read(start, end - start)
        parts.append(bytes(view))
        start += len(view)
    return b"".join(parts)


def is_rest_of_segment(data: bytes) -> bool:
    """Whether the bytes are only the filler after a segment's last record, which has its size and this magic number."""
    return len(data) < BLANK.size or BLANK.unpack_from(data) == (len(data), 0xCBD43194)


def common(one: bytes | bytearray, other: bytes | bytearray) -> int:
    """The length of the common prefix of two logs."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low
