"""Waits for a condition of a running cluster, with a time limit.

Invariant: a wait returns the awaited value, or raises `WaitExpired`, which says what was last seen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
POLL_MS = 50


class WaitExpired(TimeoutError):
    """The condition did not come true in time."""

    def __init__(self, what: str, timeout_ms: int, seen: str) -> None:
        super().__init__(f"{what}: not within {timeout_ms / 1000:g} s; last seen: {seen}")
        self.what = what


class NotYet(Exception):
    """Raised by a probe: the condition does not hold yet. The text says what was seen instead."""


async def wait_for(what: str, probe: Callable[[], Awaitable[T]], timeout_ms: int) -> T:
    """The first value that `probe` returns. The probe is called every POLL_MS as long as it raises `NotYet`."""
    seen = "nothing yet"
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            while True:
                try:
                    return await probe()
                except NotYet as error:
                    seen = str(error)
                await asyncio.sleep(POLL_MS / 1000)
    except TimeoutError:
        raise WaitExpired(what, timeout_ms, seen) from None
