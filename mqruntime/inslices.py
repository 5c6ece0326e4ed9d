"""Work of many steps, such as the answers to held pulls, in slices between which other tasks run.

Invariant: work is done in the order in which it was added, and each step is done once. If no earlier work is left, the first
SLICE steps are done at once. One task does all other steps."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import islice

from mqruntime.clock import Clock
from mqruntime.tasks import Tasks

SLICE, SLICE_US = 100, 5_000
"""Limits of a slice. The answer to a pull is a read and a write, which take about 0.1 ms. With a filter by properties a read
may take 30 ms, so no further step begins after SLICE_US."""


class InSlices:
    """The work. `tasks` runs the part after the first slice, as a task of this name."""

    def __init__(self, tasks: Tasks, clock: Clock, *, name: str) -> None:
        self._tasks = tasks
        self._name = name
        self._clock = clock
        self._work: deque[Iterator[object]] = deque()
        self._rest: asyncio.Task[None] | None = None

    @property
    def goes_on(self) -> bool:
        """Whether earlier work is left."""
        return self._rest is not None and not self._rest.done()

    def do(self, work: Iterator[object]) -> None:
        """Add work. Each item that is taken from `work` is one step."""
        self._work.append(work)
        if not self.goes_on and self._slice():
            self._rest = self._tasks.start(self._go_on(), name=self._name)

    async def ended(self) -> None:
        """Wait until all earlier work is done."""
        while self._rest is not None and not self._rest.done():
            await asyncio.wait([self._rest])

    async def _go_on(self) -> None:
        more = True
        while more:
            await asyncio.sleep(0)
            more = self._slice()

    def _slice(self) -> bool:
        """Do one slice. Returns whether work may be left."""
        steps_left, end_us = SLICE, self._clock.work_us() + SLICE_US
        while self._work:
            for _ in islice(self._work[0], steps_left):
                steps_left -= 1
                if self._clock.work_us() >= end_us:
                    return True
            if not steps_left:
                return True
            self._work.popleft()
        return False
