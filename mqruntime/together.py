"""Several servers in one process, of which each counts on those before it.

Invariant: they live and end together. One that cannot start, or fails while it serves, ends the process with its error; an
orderly end is theirs in the reverse order, and one that fails in it keeps none of the others from ending."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from mqruntime.runtime import App


class Together:
    """The app that `apps` are, on one event loop."""

    def __init__(self, *apps: App) -> None:
        self._apps = apps
        self._begun: list[App] = []

    async def start(self) -> None:
        """Serves with all of them. Raises what keeps the first of them from it; those before it are left as they are."""
        for app in self._apps:
            self._begun.append(app)
            await app.start()

    async def stop(self) -> None:
        """Raises what went wrong last."""
        async with AsyncExitStack() as stops:
            for app in self._begun:
                stops.push_async_callback(app.stop)

    async def wait_failed(self) -> BaseException:
        """The first failure of any."""
        waiting = [asyncio.create_task(app.wait_failed(), name="wait-failed") for app in self._apps]
        try:
            failed, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return next(task for task in waiting if task in failed).result()
        finally:
            for task in waiting:
                task.cancel()
