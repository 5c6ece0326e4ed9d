"""Which halves are to be told done, and how far the queue that tells it is needed.

Invariant: halves are told in the order in which they were done with. A record of the queue is needed as long as it names a
half at or above the one that the half queue is done with; of at most MARKS_MAX stretches of records it is known what they
name. Pure."""

from __future__ import annotations

from collections import deque

from broker.transactions.records import DONE_BYTES_MAX

MARKS_MAX = 4_096


class DoneQueue:
    """`batch_ms`: how long one waits for others."""

    def __init__(self, batch_ms: int) -> None:
        self._batch_ms = batch_ms
        self._waiting: list[int] = []
        self._bytes = 0
        self._since_ms = 0
        self._urgent = False
        self._marks: deque[tuple[int, int]] = (
            deque()
        )  # queue offset of a record, greatest half up to the next one

    def add(self, queue_offset: int, now_ms: int, *, at_once: bool = False) -> None:
        """This half is done with; `at_once`: nothing else in the log says so."""
        if not self._waiting:
            self._since_ms = now_ms
        self._urgent = self._urgent or at_once
        self._waiting.append(queue_offset)
        self._bytes += len(str(queue_offset)) + 1

    @property
    def due_ms(self) -> int | None:
        """When (monotonic) those that wait are to be told; None when none does."""
        if not self._waiting:
            return None
        return 0 if self._urgent or self._bytes >= DONE_BYTES_MAX else self._since_ms + self._batch_ms

    @property
    def waiting(self) -> list[int]:
        return list(self._waiting)

    def first_waiting(self) -> int | None:
        """The least of those that wait; None when none does."""
        return min(self._waiting, default=None)

    def told(self, count: int) -> None:
        """So many of those that waited, the first ones, are in the log."""
        told, self._waiting = self._waiting[:count], self._waiting[count:]
        self._bytes -= sum(len(str(queue_offset)) + 1 for queue_offset in told)
        self._urgent = self._urgent and bool(self._waiting)

    def recorded(self, record_offset: int, halves: list[int]) -> None:
        """The next record of the queue names these."""
        self._marks.append((record_offset, max(halves, default=-1)))
        if len(self._marks) > MARKS_MAX:
            pairs = list(self._marks)
            self._marks = deque(
                (first, max(high, other))
                for (first, high), (_, other) in zip(pairs[::2], pairs[1::2], strict=False)
            )
            if len(pairs) % 2:
                self._marks.append(pairs[-1])

    def needed_from(self, half_offset: int, queue_end: int) -> int:
        """The first record that is still needed when the half queue is done with up to `half_offset`."""
        while self._marks and self._marks[0][1] < half_offset:
            self._marks.popleft()
        return self._marks[0][0] if self._marks else queue_end
