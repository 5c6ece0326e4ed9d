"""The age of a segment when the record that gives it may be corrupted."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from messagestore.log.files import LogFiles
from messagestore.log.retention import RetainedSegment
from messagestore.record import RECORD_SIZE_MIN, store_timestamp
from messagestore.store.messagestore import MessageStore
from tests.support.doubles import ManualClock
from tests.unit.messagestore.storehelp import NOW_MS, message, open_store, small_settings

SEGMENT = 4096
STORED_AT = 56
"""Position of the store time in a record, eight bytes."""
BODY_AT = 88
STEP_MS = 1_000


async def filled(root: Path, segments: int, body: int = 1_000, **settings: object) -> MessageStore:
    """A master with `segments` full segments and a partial one; each record is one second younger than the
    last."""
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


def flip_bit(store: MessageStore, offset: int, at: int, bit: int = 0) -> None:
    view, start = store._log.segment_view(offset)
    view[offset - start + at] ^= 1 << bit


def stored_ms(store: MessageStore, offset: int) -> int:
    return store_timestamp(store._log.read(offset, RECORD_SIZE_MIN), 0)


def size_at(store: MessageStore, offset: int) -> int:
    return int.from_bytes(store._log.read(offset, 4))


async def ages(store: MessageStore, count: int = 10) -> list[int | None]:
    found: list[RetainedSegment] = await store.oldest_segments(count)
    return [segment.newest_ms for segment in found]


def test_a_record_with_a_valid_crc_gives_the_age_of_a_segment(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path, 2, enabled_append_prop_crc=True)
        assert await ages(store) == [stored_ms(store, SEGMENT), stored_ms(store, 2 * SEGMENT)]
        flip_bit(store, SEGMENT, STORED_AT + 4)
        assert await ages(store) == [None, stored_ms(store, 2 * SEGMENT)]
        await store.stop()

    asyncio.run(scenario())


def test_a_flipped_bit_in_a_store_time_makes_no_segment_older(tmp_path: Path) -> None:
    """By default records of Java brokers and ours have no CRC over it."""

    async def scenario() -> None:
        store = await filled(tmp_path, 1)
        true_ms, next_ms = stored_ms(store, SEGMENT), stored_ms(store, SEGMENT + size_at(store, SEGMENT))
        assert await ages(store) == [next_ms]
        for at in range(STORED_AT, STORED_AT + 8):
            for bit in range(8):
                flip_bit(store, SEGMENT, at, bit)
                (found,) = await ages(store)
                assert found is not None
                assert found >= true_ms
                flip_bit(store, SEGMENT, at, bit)
        await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("at", [0, 3, 4, BODY_AT + 7])
def test_a_corrupted_record_gives_no_age(tmp_path: Path, at: int) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path, 1)
        flip_bit(store, SEGMENT, at)
        assert await ages(store) == [None]
        await store.stop()

    asyncio.run(scenario())


def test_segments_of_one_record_are_as_old_as_the_next_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path, 3, body=3_000)
        times = [stored_ms(store, number * SEGMENT) for number in (2, 3)]
        assert (await ages(store))[:2] == times
        await store.stop()

    asyncio.run(scenario())


def test_a_segment_followed_by_one_record_without_a_crc_has_no_age(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path, 1, body=3_000)
        await store.truncate(SEGMENT + size_at(store, SEGMENT))
        assert await ages(store) == [None]
        await store.stop()

    asyncio.run(scenario())


def meanwhile(monkeypatch: pytest.MonkeyPatch, offset: int, action: Callable[[], Awaitable[object]]) -> None:
    """After the first read of the log at `offset`, run `action` once."""
    read_cold, left = LogFiles.read_cold, [action]

    async def read_later(log: LogFiles, at: int, size_max: int) -> bytes:
        found = await read_cold(log, at, size_max)
        if at == offset and left:
            await left.pop()()
        return found

    monkeypatch.setattr(LogFiles, "read_cold", read_later)


@pytest.mark.parametrize(("cut_to", "left"), [(SEGMENT, 0), (2 * SEGMENT, 1), (2 * SEGMENT + 1_200, 2)])
def test_a_log_truncated_while_its_age_is_read_returns_the_remaining_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut_to: int, left: int
) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path, 3)
        oldest = await ages(store, 1)
        meanwhile(monkeypatch, 2 * SEGMENT, lambda: store.truncate(cut_to))
        assert await ages(store) == [*oldest, None][:left]
        await store.stop()

    asyncio.run(scenario())


def test_a_log_replaced_while_its_age_is_read_returns_no_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path, 2)

        async def replaced() -> None:
            store.become_slave()
            await store.truncate(0)
            await store.begin_empty_at(16 * SEGMENT)
            store.write_view(16 * SEGMENT, 8)

        meanwhile(monkeypatch, SEGMENT, replaced)
        assert await ages(store) == []
        await store.stop()

    asyncio.run(scenario())


def test_a_segment_with_an_unreadable_age_is_as_old_as_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One bad sector once kept all segments for ever, also those that forced deletion of a full disk should
    remove."""
    read_cold = LogFiles.read_cold

    async def fails(log: LogFiles, at: int, size_max: int) -> bytes:
        if at == SEGMENT:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return await read_cold(log, at, size_max)

    async def scenario() -> None:
        store = await filled(tmp_path, 3)
        before = await ages(store)
        monkeypatch.setattr(LogFiles, "read_cold", fails)
        for _ in range(3):
            assert await ages(store) == [None, *before[1:]]
        await store.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert [line.getMessage() for line in caplog.records] == [
        "how old a segment is cannot be read: it counts as old as the next one"
    ]


def test_the_last_segment_is_not_listed_as_old_even_if_it_is_full(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path, 2)
        await store.truncate(2 * SEGMENT)
        assert [segment.end for segment in await store.oldest_segments(10)] == [SEGMENT]
        await store.stop()

    asyncio.run(scenario())
