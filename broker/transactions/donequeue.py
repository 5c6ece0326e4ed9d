"""The halves (messages of transactions) that are done and wait for an op record, and the first op record that is still needed.
An op record is a stored message that names halves that are done.

Invariant: op records name halves in the order in which they were done. An op record is needed while it names a half at or above
the half queue's progress. The highest half is known for at most MARKS_MAX ranges of op records. Pure."""

from __future__ import annotations

from collections import deque

from broker.transactions.records import DONE_BYTES_MAX

MARKS_MAX = 4_096


class DoneQueue:
    """The pending op records of one master. A half waits at most `batch_ms` for other halves to share its record."""

    def __init__(self, batch_ms: int) -> None:
        self._batch_ms = batch_ms
        self._waiting: list[int] = []
        self._bytes = 0
        self._since_ms = 0
        self._urgent = False
        self._marks: deque[tuple[int, int]] = (
            deque()
        )  # (queue offset of an op record, highest half up to the next mark)

    def add(self, queue_offset: int, now_ms: int, *, at_once: bool = False) -> None:
        """Mark a half as done. `at_once`: no other record in the log shows that it is done."""
        if not self._waiting:
            self._since_ms = now_ms
        self._urgent = self._urgent or at_once
        self._waiting.append(queue_offset)
        self._bytes += len(str(queue_offset)) + 1

    @property
    def due_ms(self) -> int | None:
        """The monotonic time at which the waiting halves are to be written; None if none waits."""
        if not self._waiting:
            return None
        return 0 if self._urgent or self._bytes >= DONE_BYTES_MAX else self._since_ms + self._batch_ms

    @property
    def waiting(self) -> list[int]:
        return list(self._waiting)

    def first_waiting(self) -> int | None:
        """The lowest half that waits; None if none waits."""
        return min(self._waiting, default=None)

    def written(self, count: int) -> None:
        """Remove the first `count` waiting halves, which are in the log now."""
        written, self._waiting = self._waiting[:count], self._waiting[count:]
        self._bytes -= sum(len(str(queue_offset)) + 1 for queue_offset in written)
        self._urgent = self._urgent and bool(self._waiting)

    def recorded(self, record_offset: int, halves: list[int]) -> None:
        """Record the halves that the next op record in the queue names."""
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
        """The first op record that is still needed when the half queue is done up to `half_offset`."""
        while self._marks and self._marks[0][1] < half_offset:
            self._marks.popleft()
        return self._marks[0][0] if self._marks else queue_end
