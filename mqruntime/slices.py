"""Work on many bytes in slices, between which others have their turn.

Invariant: nothing holds the loop for longer than SLICE_BYTES take; their number has no part in the result. Pure."""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar
from zlib import crc32

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview
SLICE_BYTES = 2 << 20
"""A copy with its check value takes 1 to 4 ms."""


Steps = Generator[None, None, T]
"""Work of which each step takes about a millisecond; what it returns in the end is its result."""


def whole(steps: Steps[T]) -> T:
    """The result of `steps`, without turns between them, for those who run alone."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made


@types.coroutine
def turn() -> Generator[None, None, None]:
    """Others go on. As asyncio.sleep(0), but `at_once` needs no loop for it."""
    yield


async def by_turns(steps: Steps[T]) -> T:
    """The result of `steps`, with a turn after each."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made
        await turn()


async def crc32_by_turns(data: Buffer, check: int = 0) -> int:
    """The CRC-32 of what `check` is of, and of `data` behind it, which must not change meanwhile."""
    view = memoryview(data)
    for start in range(0, len(view), SLICE_BYTES):
        if start:
            await turn()
        check = crc32(view[start : start + SLICE_BYTES], check)
    return check


async def append_by_turns(target: bytearray, data: Buffer, check: int = 0) -> int:
    """Puts `data` behind `target`, and gives `crc32_by_turns` of it. Neither may be touched meanwhile."""
    view = memoryview(data)
    for start in range(0, len(view), SLICE_BYTES):
        if start:
            await turn()
        part = view[start : start + SLICE_BYTES]
        target += part
        check = crc32(part, check)
    return check


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """What `work`, which waits for nothing but turns, returns; for those who run alone."""
    try:
        while True:
            work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
