"""The background tasks of one owner.

Invariant: every started task is referenced here until it ends, and an exception that ends one reaches `on_fatal`; none is
lost and none outlives `stop`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Tasks:
    """Tasks in the order they were started; `on_fatal` gets every exception that ended one."""

    def __init__(self, on_fatal: Callable[[BaseException], None]) -> None:
        self._on_fatal = on_fatal
        self._tasks: dict[asyncio.Task[Any], None] = {}  # a dict, not a set: stop() must go in a known order
        self._stopping = False

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run `coro` until it returns, raises or `stop` cancels it."""
        assert not self._stopping, f"task {name} started while its owner stops"
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def fail(self, error: BaseException) -> None:
        """Work of the owner without a task of its own, such as a timer, ended with `error`."""
        self._on_fatal(error)

    async def stop(self) -> None:
        """Cancel every task and wait until all have ended. If the calling task belongs to this owner, it is not cancelled: it
        ends by itself. The owner may start tasks again afterwards."""
        self._stopping = True
        try:
            current = asyncio.current_task()
            others = [task for task in self._tasks if task is not current]
            for task in others:
                task.cancel()
            for task in others:
                while not task.done():
                    await asyncio.wait([task])
        finally:
            self._stopping = False

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_fatal(error)
