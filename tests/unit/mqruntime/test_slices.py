"""Many bytes in slices: the same result, and others between them."""

from __future__ import annotations

import asyncio
from zlib import crc32

import pytest

from mqruntime import slices
from mqruntime.slices import append_by_turns, crc32_by_turns, run_without_loop

DATA = bytes(range(250))


@pytest.mark.parametrize("size", [1, 9, 249, 250, 1_000])
def test_the_slice_size_does_not_change_the_result(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_BYTES", size)
    target = bytearray(b"before")
    assert (
        run_without_loop(append_by_turns(target, DATA, 7))
        == run_without_loop(crc32_by_turns(DATA, 7))
        == crc32(DATA, 7)
    )
    assert target == b"before" + DATA


def test_other_tasks_run_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_BYTES", 50)

    async def run() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await append_by_turns(bytearray(), DATA)
        counting.cancel()
        return turns

    assert asyncio.run(run()) == len(DATA) / 50 - 1
