"""The wait of a task that runs now and then, and at once when it is asked to."""

from __future__ import annotations

import asyncio


async def woken(wake: asyncio.Event, wait_ms: int | None) -> bool:
    """Waits until `wake` is set, `wait_ms` at most (None: as long as it takes); whether it was. Clearing it is the caller's
    part: before what it then looks at, so that nothing is missed."""
    try:
        async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
            await wake.wait()
    except TimeoutError:
        return False
    return True
