"""Concurrent calls to several broker sets.

Invariant: a broker set that does not answer does not delay the other calls, and every call has ended when `together`
returns."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def together(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of the calls, in order. If some calls fail, the error of the first of them is raised. A single call is
    awaited directly."""
    if len(calls) == 1:
        return [await calls[0]]
    results: list[T] = []
    failed: list[BaseException] = []
    for ended in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(ended, BaseException):
            failed.append(ended)
        else:
            results.append(ended)
    if failed:
        raise failed[0]
    return results
