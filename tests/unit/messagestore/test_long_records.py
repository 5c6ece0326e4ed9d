"""Records from a time with a larger maxMessageSize are dispatched from memory and from the disk."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from messagestore.dispatch.dispatchloop import STEP_BYTES_MIN
from tests.unit.messagestore.storehelp import message, open_store, small_settings

COUNT = 6


@pytest.mark.parametrize("hot", [1, 100])
def test_records_longer_than_a_dispatch_step_are_dispatched(tmp_path: Path, hot: int) -> None:
    async def story() -> None:
        lowered = small_settings(
            mapped_file_size_commit_log=8 * STEP_BYTES_MIN,
            max_message_size=STEP_BYTES_MIN // 4,
            hot_segments=hot,
            message_index_enable=False,
        )
        store = open_store(tmp_path, lowered)
        await store.start()
        await store.become_master()
        for number in range(COUNT):
            body = bytes([number]) * (3 * STEP_BYTES_MIN)
            (appended,) = store.append([replace(message(body), stored_before=True)])
            assert appended.error is None
        store.set_confirm_offset(store.max_offset())
        async with asyncio.timeout(20):
            while store.max_queue_offset("TopicTest", 0) < COUNT:  # noqa: ASYNC110 - the disk is real, so is the waiting
                await asyncio.sleep(0)
        assert store.dispatched_offset() == store.max_offset()
        await store.stop()

    asyncio.run(story())
