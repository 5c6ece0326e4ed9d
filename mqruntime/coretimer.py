"""The one timer of a shell: it ticks the core when the core's next tick is due.

Invariant: it never fires later than the earliest due time it was given. If it fires early, it does nothing and is armed
again, which costs less than moving it with every message. An exception of `on_due` is a bug and reaches the owner's
`on_fatal`: otherwise a core without ticks would look alive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mqruntime.clock import Clock
from mqruntime.core import NEVER_MS
from mqruntime.tasks import Tasks


class CoreTimer:
    """`on_due` ticks the core and sets the next due time; `tasks` are the owner's."""

    def __init__(self, clock: Clock, tasks: Tasks, on_due: Callable[[], None]) -> None:
        self._clock = clock
        self._tasks = tasks
        self._on_due = on_due
        self._handle: asyncio.TimerHandle | None = None
        self._due_ms = NEVER_MS

    def due_at(self, due_ms: int) -> None:
        """Fire at `due_ms` (monotonic), or now if that has passed."""
        if due_ms >= self._due_ms:
            return
        self.cancel()
        self._due_ms = due_ms
        # clock readings are cut to whole ms: round up, so that it does not fire early
        delay_ms = max(0, due_ms - self._clock.monotonic_ms()) + 1
        self._handle = asyncio.get_running_loop().call_later(delay_ms / 1000, self._fire)

    def cancel(self) -> None:
        self._due_ms = NEVER_MS
        if self._handle is not None:
            self._handle.cancel()

    def _fire(self) -> None:
        self._due_ms = NEVER_MS
        try:
            self._on_due()
        except Exception as error:
            self._tasks.fail(error)
