"""Flipped bits in segments of earlier processes: not served, not sent, found by the scrub, and repaired."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from messagestore.errors import OffsetOutOfRange, RecordDamaged, StoreError
from messagestore.queues.consumequeue import ENTRY
from messagestore.scrub.walk import WalkedSlice
from messagestore.store.messagestore import MessageStore
from tests.unit.messagestore.corruptedlogs import (
    IN_BODY,
    IN_MAGIC,
    IN_POSITION,
    IN_SIZE,
    SEGMENT,
    flip,
    opened,
)
from tests.unit.messagestore.storehelp import NOW_MS, dispatch_all, in_loop, message

BODY = 300
COUNT = 60


async def stored(root: Path) -> list[int]:
    """Fill and stop a store of several segments; return the offsets of its records."""
    store = await opened(root)
    await store.become_master()
    outcomes = store.append([message(bytes([n]) * BODY) for n in range(COUNT)])
    dispatch_all(store)
    await store.stop()
    return [outcome.physical_offset for outcome in outcomes]


def content_at(root: Path, offset: int, size: int) -> bytes:
    at = offset % SEGMENT
    return (root / "commitlog" / f"{offset - at:020d}").read_bytes()[at : at + size]


async def pull(store: MessageStore, queue_offset: int) -> list[memoryview]:
    result = store.get("TopicTest", 0, queue_offset, 1, 1 << 20)
    await store.load(result)
    return result.buffers


async def damage_found(store: MessageStore) -> list[int]:
    while not store.scrubber.schedule.passes:  # noqa: ASYNC110 - the disk is real, so is the waiting
        await asyncio.sleep(0)
    return sorted(store.integrity.damages)


@pytest.mark.parametrize("hot", [2, 100])
@pytest.mark.parametrize("at", [IN_BODY, IN_SIZE, IN_MAGIC, IN_POSITION])
@in_loop
async def test_a_corrupted_record_is_not_served_and_its_neighbours_are(
    tmp_path: Path, hot: int, at: int
) -> None:
    places = await stored(tmp_path)
    flip(tmp_path, places[3], at=at)
    store = await opened(tmp_path, hot_segments=hot)
    assert len(await pull(store, 2)) == 1
    with pytest.raises(RecordDamaged, match=f"the record at {places[3]} is damaged"):
        await pull(store, 3)
    with pytest.raises(RecordDamaged, match=f"the record at {places[3]} is damaged"):
        await store.message_at(places[3])
    assert len(await pull(store, 4)) == 1
    await store.stop()


@in_loop
async def test_a_queue_entry_with_a_wrong_offset_marks_no_record_as_damaged(tmp_path: Path) -> None:
    places = await stored(tmp_path)
    store = await opened(tmp_path)
    assert await store.message_at(places[3] + 7) is None
    await store.integrity.check(places[4] + 7, 20)
    assert not store.integrity.damages
    await store.stop()


def rewrite_entry(store: MessageStore, queue_offset: int, phy: int | None, size: int | None) -> None:
    queue = store._queues.find("TopicTest", 0)
    assert queue is not None
    index, place = divmod(queue_offset, queue._per_file)
    found_phy, found_size, tags_code = queue.entry(queue_offset)
    entry = found_phy if phy is None else phy, found_size if size is None else size, tags_code
    ENTRY.pack_into(queue._open(index).view(), place * ENTRY.size, *entry)


@pytest.mark.parametrize("size", [392, 1, -1])
@in_loop
async def test_a_queue_entry_with_a_wrong_size_marks_no_record_as_damaged(tmp_path: Path, size: int) -> None:
    places = await stored(tmp_path)
    store = await opened(tmp_path)
    rewrite_entry(store, 3, None, size)
    await store.integrity.check(places[4], 300)
    assert len(await pull(store, 4)) == 1
    assert not store.integrity.damages
    await store.stop()


@pytest.mark.parametrize("hot", [2, 100])
@pytest.mark.parametrize("count", [1, 32])
@pytest.mark.parametrize(
    ("phy", "size"),
    [
        (None, -(1 << 31)),
        (None, -1),
        (None, 0),
        (None, 5_000),
        (None, 1 << 30),
        (1 << 40, None),
        (4_090, None),
    ],
)
@in_loop
async def test_a_corrupted_queue_entry_fails_its_reader_and_not_the_broker(
    tmp_path: Path, phy: int | None, size: int | None, count: int, hot: int
) -> None:
    await stored(tmp_path)
    store = await opened(tmp_path, hot_segments=hot)
    rewrite_entry(store, 3, phy, size)
    result = store.get("TopicTest", 0, 3 if count == 1 else 0, count, 1 << 31)
    with pytest.raises(
        StoreError, match="consumequeue/TopicTest/0: the entry .* delete the folder consumequeue"
    ):
        await store.load(result)
    assert not result.buffers and len(await pull(store, 4)) == 1
    assert await store.store_time_at("TopicTest", 0, 3) <= NOW_MS * 2
    await store.stop()


@pytest.mark.parametrize("kept", [0, 3, 7])
@in_loop
async def test_records_truncated_during_a_read_are_not_returned(tmp_path: Path, kept: int) -> None:
    """Neither remaining bytes nor the zeros that replace them are returned."""
    places = await stored(tmp_path)
    store = await opened(tmp_path, hot_segments=1)
    result = store.get("TopicTest", 0, 0, 8, 1 << 20)
    assert result.cold and result.count == 8
    read, cut = store._log.read_cold, asyncio.Event()

    async def read_behind_a_cut(offset: int, size_max: int) -> bytes:
        if not cut.is_set():
            cut.set()
            await store.truncate(places[kept])
        return await read(offset, size_max)

    store._log.read_cold = read_behind_a_cut  # type: ignore[method-assign]
    with pytest.raises(OffsetOutOfRange):
        await store.load(result)
    assert not result.buffers
    await store.stop()


@in_loop
async def test_a_corrupted_record_is_not_sent_and_records_before_it_are(tmp_path: Path) -> None:
    places = await stored(tmp_path)
    flip(tmp_path, places[20], at=IN_BODY)
    store = await opened(tmp_path)
    assert not store.integrity.is_checked(0, 100) and store.at_hand(0, 100) is None
    assert await store.check(0, places[20]) is None
    assert store.integrity.is_checked(0, places[20])
    assert f"the record at {places[20]} is damaged" in (await store.check(places[19], 2000) or "")
    assert await store.check(places[21], 300) is None
    await store.stop()


@pytest.mark.parametrize("at", [IN_BODY, IN_SIZE])
@in_loop
async def test_the_scrub_finds_damage_and_continues(tmp_path: Path, at: int) -> None:
    places = await stored(tmp_path)
    flip(tmp_path, places[3], at=at)
    flip(tmp_path, places[30], at=IN_BODY)
    store = await opened(tmp_path, scrub_bytes_per_second=1 << 40)
    assert await damage_found(store) == [places[3], places[30]]
    assert store.integrity.damages[places[3]].segment == "00000000000000000000"
    assert store.integrity.is_checked(places[31], 300)
    await store.stop()


@in_loop
async def test_records_written_by_this_process_need_no_check(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.become_master()
    store.append([message(bytes(BODY)) for _ in range(COUNT)])
    assert store.integrity.is_checked(0, store.max_offset())
    await store.stop()


@in_loop
async def test_a_later_scrub_finds_corruption_in_a_running_store(tmp_path: Path) -> None:
    places = await stored(tmp_path)
    store = await opened(tmp_path, scrub_bytes_per_second=1 << 40, scrub_interval=1000)
    assert await damage_found(store) == []
    view, start = store._log.segment_view(places[3])
    view[places[3] - start + IN_BODY] ^= 1
    while not store.integrity.damages:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0)
    assert sorted(store.integrity.damages) == [places[3]]
    await store.stop()


@in_loop
async def test_a_truncation_removes_the_damage(tmp_path: Path) -> None:
    places = await stored(tmp_path)
    flip(tmp_path, places[30], at=IN_BODY)
    store = await opened(tmp_path, scrub_bytes_per_second=1 << 40)
    assert await damage_found(store) == [places[30]]
    await store.truncate(places[29])
    assert not store.integrity.damages
    assert store.integrity.is_checked(0, store.max_offset())
    await store.stop()


@pytest.mark.parametrize("at", [IN_BODY, IN_SIZE, IN_POSITION])
@in_loop
async def test_only_the_original_record_repairs_the_damage(tmp_path: Path, at: int) -> None:
    places = await stored(tmp_path)
    intact = content_at(tmp_path, places[3], places[4] - places[3])
    other = content_at(tmp_path, places[5], places[6] - places[5])
    flip(tmp_path, places[3], at=at)
    bad = content_at(tmp_path, places[3], places[4] - places[3])
    store = await opened(tmp_path, scrub_bytes_per_second=1 << 40)
    assert await damage_found(store) == [places[3]]
    for wrong in (other, bad, b"", intact[:-1], intact + bytes(1)):
        assert not await store.repair(places[3], wrong)
    assert not await store.repair(places[5], other)
    assert await store.repair(places[3], intact)
    assert not store.integrity.damages
    assert bytes((await pull(store, 3))[0]) == intact
    await store.stop()
    assert content_at(tmp_path, places[3], len(intact)) == intact


@in_loop
async def test_only_records_and_segment_ends_are_boundaries(tmp_path: Path) -> None:
    places = await stored(tmp_path)
    store = await opened(tmp_path)
    sizes = [after - place for place, after in zip(places, places[1:], strict=False)]
    for place in places:
        assert await store.is_boundary(place)
        assert not await store.is_boundary(place + 1)
    blank = next(place + sizes[0] for place, size in zip(places, sizes, strict=False) if size != sizes[0])
    assert await store.is_boundary(blank)
    await store.stop()


def flip_beneath(store: MessageStore, offset: int, *, at: int) -> None:
    """Flip a bit of the record at `offset` while the store runs."""
    view, start = store._log.segment_view(offset)
    view[offset - start + at] ^= 4


@pytest.mark.parametrize("hot", [2, 100])
@pytest.mark.parametrize("at", [IN_BODY, IN_SIZE, IN_MAGIC, IN_POSITION])
@in_loop
async def test_a_record_corrupted_after_its_check_is_not_copied(tmp_path: Path, hot: int, at: int) -> None:
    """A copy gets a new CRC: copies are made of due delayed messages and of committed transactions."""
    places = await stored(tmp_path)
    store = await opened(tmp_path, hot_segments=hot)
    size = places[1] - places[0]
    intact = bytes(await store.message_at(places[3], size) or b"")
    assert store.integrity.is_checked(places[3], size)
    flip_beneath(store, places[3], at=at)
    for _ in range(2):
        with pytest.raises(RecordDamaged, match=f"the record at {places[3]} is damaged"):
            await store.message_at(places[3], size)
    assert list(store.integrity.damages) == [places[3]], "so it will be repaired from another replica"
    assert await store.repair(places[3], intact)
    assert await store.message_at(places[3], size) == intact
    assert await store.message_at(places[3] + 7, size) is None and not store.integrity.damages
    await store.stop()


@in_loop
async def test_a_recheck_ends_when_retention_deletes_its_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recheck that never ends would stop the broker."""
    places = await stored(tmp_path)
    store = await opened(tmp_path)
    while store.dispatch():
        pass
    assert await store.message_at(places[3]) is not None
    flip(tmp_path, places[3], at=IN_BODY)
    is_boundary, walk, walks = store._log.is_boundary, store.integrity.walk, list[int]()

    async def begins_meanwhile(offset: int) -> bool:
        await store.begin_at(SEGMENT, lambda: True)
        return await is_boundary(offset + SEGMENT - offset % SEGMENT)

    async def counted(position: int, limit: int) -> WalkedSlice:
        walks.append(position)
        assert len(walks) < 100, "the recheck never ends"
        return await walk(position, limit)

    monkeypatch.setattr(store._log, "is_boundary", begins_meanwhile)
    monkeypatch.setattr(store.integrity, "walk", counted)
    assert await store.message_at(places[3], 400) is None
    assert store.min_offset() == SEGMENT and store.integrity.unchecked.first(0, SEGMENT) is None
    await store.stop()
