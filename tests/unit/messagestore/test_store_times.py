"""How old a segment is, where the record that tells it may have rotted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from messagestore.log.retention import Segment
from messagestore.record import RECORD_SIZE_MIN, store_timestamp
from messagestore.store import MessageStore
from tests.unit.doubles import ManualClock
from tests.unit.messagestore.storehelp import NOW_MS, message, open_store, small_settings

SEGMENT = 4096
STORED_AT = 56
"""Of a record: its store time, eight bytes."""
BODY_AT = 88
STEP_MS = 1_000


async def filled(root: Path, segments: int, body: int = 1_000, **settings: object) -> MessageStore:
    """A master's log of so many full segments and a begun one; each record is a second younger than the one before."""
    store = open_store(root, small_settings(scrub_bytes_per_second=0, **settings))
    store._clock = clock = ManualClock()
    clock.wall_ms = NOW_MS
    await store.start()
    await store.become_master()
    while store.max_offset() < segments * SEGMENT + 2 * body:
        clock.wall_ms += STEP_MS
        store.append([message(bytes(body))])
    await store.flush()
    return store


def rot(store: MessageStore, offset: int, at: int, bit: int = 0) -> None:
    view, start = store._log.segment_view(offset)
    view[offset - start + at] ^= 1 << bit


def stored_ms(store: MessageStore, offset: int) -> int:
    return store_timestamp(store._log.read(offset, RECORD_SIZE_MIN), 0)


def size_at(store: MessageStore, offset: int) -> int:
    return int.from_bytes(store._log.read(offset, 4))


async def ages(store: MessageStore, count: int = 10) -> list[int | None]:
    found: list[Segment] = await store.oldest_segments(count)
    return [segment.newest_ms for segment in found]


def test_a_record_whose_own_crc_agrees_tells_its_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path, 2, enabled_append_prop_crc=True)
        assert await ages(store) == [stored_ms(store, SEGMENT), stored_ms(store, 2 * SEGMENT)]
        rot(store, SEGMENT, STORED_AT + 4)
        assert await ages(store) == [None, stored_ms(store, 2 * SEGMENT)]
        await store.stop()

    asyncio.run(scenario())


def test_no_bit_that_rots_in_a_store_time_makes_a_segment_older(tmp_path: Path) -> None:
    """Records of Java brokers, and ours by default, have no CRC over it."""

    async def scenario() -> None:
        store = await filled(tmp_path, 1)
        true_ms, next_ms = stored_ms(store, SEGMENT), stored_ms(store, SEGMENT + size_at(store, SEGMENT))
        assert await ages(store) == [next_ms]
        for at in range(STORED_AT, STORED_AT + 8):
            for bit in range(8):
                rot(store, SEGMENT, at, bit)
                (found,) = await ages(store)
                assert found is not None
                assert found >= true_ms
                rot(store, SEGMENT, at, bit)
        await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("at", [0, 3, 4, BODY_AT + 7])
def test_a_record_that_is_not_as_it_was_written_tells_no_time(tmp_path: Path, at: int) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path, 1)
        rot(store, SEGMENT, at)
        assert await ages(store) == [None]
        await store.stop()

    asyncio.run(scenario())


def test_segments_of_one_record_each_are_as_old_as_the_next_one_tells(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path, 3, body=3_000)
        times = [stored_ms(store, number * SEGMENT) for number in (2, 3)]
        assert (await ages(store))[:2] == times
        await store.stop()

    asyncio.run(scenario())


def test_a_segment_behind_which_one_record_stands_without_a_crc_stays(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path, 1, body=3_000)
        await store.truncate(SEGMENT + size_at(store, SEGMENT))
        assert await ages(store) == [None]
        await store.stop()

    asyncio.run(scenario())
