"""Many deadlines on one timer of the event loop.

Invariant: while any future is waiting, one timer is set, for the earliest deadline or a time before it. Finished futures may
stay in the queue for a while: at most KEPT_MIN or, if that is more, as many as ever waited at one time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from mqruntime.clock import Clock
from remoting.command import RemotingCommand
from remoting.errors import RemotingError

Waiting = asyncio.Future[RemotingCommand]
KEPT_MIN = 64
"""A sweep is not worthwhile for fewer entries."""


class Deadlines:
    """Futures that fail with a given error at a given time unless they are done before."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, Waiting, Callable[[], RemotingError]]] = []
        self._added = 0  # orders equal deadlines
        self._sweep_at = KEPT_MIN  # number of entries: twice those that waited at the last sweep
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0

    def add(self, future: Waiting, timeout_ms: int, error: Callable[[], RemotingError]) -> None:
        """Fail `future` with `error()` in `timeout_ms` from now."""
        at_ms = self._clock.monotonic_ms() + timeout_ms
        self._added += 1
        heap = self._heap
        while heap and heap[0][2].done():
            heappop(heap)
        if len(heap) >= self._sweep_at:
            self._sweep()
        heappush(heap, (at_ms, self._added, future, error))
        if self._timer is None or at_ms < self._timer_at_ms:
            self._arm(at_ms)

    def _sweep(self) -> None:
        """Drop finished futures that are queued after a waiting one. Sweeps are so rare that a sweep costs no more than the
        pushes since the last sweep."""
        self._heap[:] = [entry for entry in self._heap if not entry[2].done()]
        heapify(self._heap)
        self._sweep_at = max(KEPT_MIN, 2 * len(self._heap))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()

    def _arm(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(1, at_ms - self._clock.monotonic_ms())
        self._timer_at_ms = at_ms
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        while self._heap and (self._heap[0][0] <= now_ms or self._heap[0][2].done()):
            _, _, future, error = heappop(self._heap)
            if not future.done():
                future.set_exception(error())
        if self._heap:
            self._arm(self._heap[0][0])
