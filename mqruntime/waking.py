"""The wait of a task that runs periodically, and at once on request."""

from __future__ import annotations

import asyncio


async def wait_event(wake: asyncio.Event, wait_ms: int | None) -> bool:
    """Wait until `wake` is set, at most `wait_ms` (None: forever); returns whether it was set. The caller clears it before it
    reads the state, so that no change is missed."""
    try:
        async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
            await wake.wait()
    except TimeoutError:
        return False
    return True
