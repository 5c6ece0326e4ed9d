"""One process of a node, from start to end: everything that a kill ends at once.

Invariant: a callback of a dead process never runs. A callback of a paused process runs after the pause, in the order in which
it was due. So a killed process executes nothing more, not even its `finally` blocks."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from typing import Any

PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("simulated process", default=None)

SWEEP_EVERY = 64
CLOSE_ATTEMPTS_MAX = 100  # limit of awaits in finally blocks of one coroutine


class Process:
    """A process. Its tasks and callbacks have it in their context. `host` has its sockets. `pauses` are (from, to) in us;
    `worked_us` is the charge for its work (simulation.kernel.cpu)."""

    def __init__(self, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.alive = True
        self.paused = False
        self.resumes_at_us = 0
        self.paused_at_us = 0
        self.pauses: list[tuple[int, int]] = []
        self.worked_us = 0
        self.held: list[asyncio.Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self._sweep_at = SWEEP_EVERY
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Keep a strong reference to the task, so that the garbage collector never decides when a task ends."""
        if len(self.tasks) >= self._sweep_at:
            self.tasks = self.pending()
            self._sweep_at = 2 * len(self.tasks) + SWEEP_EVERY
        self.tasks.append(task)

    def pending(self) -> list[asyncio.Task[Any]]:
        """Tasks that have not ended, oldest first."""
        return [task for task in self.tasks if not task.done()]

    def bury(self) -> None:
        """Close the remaining coroutines, only at the end of the world. Their `finally` blocks run now, with a loop, network
        and disk that no longer do anything."""
        self.alive = False
        for task in self.pending():
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            close_quietly(task.get_coro(), self.context)
        self.tasks.clear()
        self.held.clear()


def close_quietly(coroutine: Any, context: contextvars.Context) -> None:
    """Close a coroutine of a dead process, whatever its `finally` blocks raise or wait for."""
    if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        for argument in inspect.getcoroutinelocals(coroutine).values():  # not awaited yet
            if inspect.iscoroutine(argument):
                close_quietly(argument, context)
    close: Callable[[], None] = coroutine.close
    for _ in range(CLOSE_ATTEMPTS_MAX):
        try:
            context.copy().run(close)
        except BaseException as error:  # noqa: BLE001 - nothing is left to handle it
            if isinstance(error, KeyboardInterrupt):
                raise
        if not inspect.iscoroutine(coroutine) or inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED:
            return
