"""Calls to several broker sets at a time.

Invariant: one that is silent holds up no other, and every call has ended when this has."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def together(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Their results, in order; where some fail, the error of the first of them. One alone is awaited in place."""
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
