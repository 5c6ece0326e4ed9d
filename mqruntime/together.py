"""Several servers in one process, each relying on those before it.

Invariant: they start and end together. If one cannot start, or fails while it serves, the process ends with its error. A
clean stop stops them in reverse order, and a failure of one does not keep the others from stopping."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from mqruntime.runtime import App


class AppGroup:
    """The app that consists of `apps`, on one event loop."""

    def __init__(self, *apps: App) -> None:
        self._apps = apps
        self._begun: list[App] = []

    async def start(self) -> None:
        """Start all of them. Raises the first one's error; those before it are left as they are."""
        for app in self._apps:
            self._begun.append(app)
            await app.start()

    async def stop(self) -> None:
        """Raises the last error."""
        async with AsyncExitStack() as stops:
            for app in self._begun:
                stops.push_async_callback(app.stop)

    async def wait_failed(self) -> BaseException:
        """The first failure of any of them."""
        waiting = [asyncio.create_task(app.wait_failed(), name="wait-failed") for app in self._apps]
        try:
            failed, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return next(task for task in waiting if task in failed).result()
        finally:
            for task in waiting:
                task.cancel()
