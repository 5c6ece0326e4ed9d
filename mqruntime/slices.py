"""Work on many bytes in slices, between which other tasks run.

Invariant: no slice blocks the loop for longer than SLICE_BYTES take; the number of slices does not affect the result. Pure."""

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
"""Work whose steps each take about a millisecond; its return value is the result."""


def whole(steps: Steps[T]) -> T:
    """The result of `steps`, without yielding between them, for callers without an event loop."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made


@types.coroutine
def yield_to_loop() -> Generator[None, None, None]:
    """Yield to other tasks: asyncio.sleep(0), which `run_without_loop` can run without a loop."""
    yield


async def by_turns(steps: Steps[T]) -> T:
    """The result of `steps`, yielding after each."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made
        await yield_to_loop()


async def crc32_by_turns(data: Buffer, check: int = 0) -> int:
    """The CRC-32 of the bytes that `check` covers, followed by `data`, which must not change meanwhile."""
    view = memoryview(data)
    for start in range(0, len(view), SLICE_BYTES):
        if start:
            await yield_to_loop()
        check = crc32(view[start : start + SLICE_BYTES], check)
    return check


async def append_by_turns(target: bytearray, data: Buffer, check: int = 0) -> int:
    """Append `data` to `target` and return its `crc32_by_turns`. Neither may be changed meanwhile."""
    view = memoryview(data)
    for start in range(0, len(view), SLICE_BYTES):
        if start:
            await yield_to_loop()
        part = view[start : start + SLICE_BYTES]
        target += part
        check = crc32(part, check)
    return check


def run_without_loop(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which may await nothing but `yield_to_loop`, for callers without an event loop."""
    try:
        while True:
            work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
