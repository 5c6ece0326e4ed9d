"""A log whose records skip queue offsets, as masters of other versions wrote it: slaves keep running, readers
skip the gaps, and the next master continues at the ends of its queues."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from messagestore.checkpoint import Checkpoint
from messagestore.messages import GetStatus
from messagestore.queues.consumequeue import (
    GAP_PLACES_MAX,
    PLACE_MAX,
    ConsumeQueue,
    filler,
    is_filler,
    listed_end,
    listed_start,
)
from messagestore.record import Message, encode, encode_blank
from messagestore.store.messagestore import MessageStore
from mqruntime.segments import RealSegmentDirectory
from tests.unit.messagestore.storehelp import message, open_store, queue_entries, small_settings, worked

pytestmark = pytest.mark.usefixtures("way")

WHERE = "TopicTest", 0
SEGMENT = 64 << 10
RECORD = 115
LISTED = [0, 1, 2, 3, 4, 7, 8]
"""Queue offsets of the records of the log that most tests receive."""


def record(position: int, queue_offset: int, topic: str = WHERE[0], queue_id: int = 0) -> bytes:
    message: Message = worked()
    message.topic, message.queue_id, message.queue_offset = topic, queue_id, queue_offset
    message.physical_offset = position
    return encode(message)


def receive(
    store: MessageStore, queue_offsets: list[int], topic: str = WHERE[0], queue_id: int = 0
) -> list[int]:
    """Write records as a slave's link does; return their offsets."""
    places = []
    for queue_offset in queue_offsets:
        position = store.max_offset()
        left = SEGMENT - position % SEGMENT
        if left < 2 * RECORD:
            store.write_view(position, left)[:8] = encode_blank(left)
            position += left
            store.advance(position)
        content = record(position, queue_offset, topic, queue_id)
        store.write_view(position, len(content))[:] = content
        store.advance(position + len(content))
        places.append(position)
    return places


async def slave(root: Path) -> MessageStore:
    store = open_store(root, small_settings(mapped_file_size_commit_log=SEGMENT))
    await store.start()
    return store


async def all_dispatched(store: MessageStore) -> None:
    store.set_confirm_offset(store.max_offset())
    while store.dispatched_offset() < store.max_offset():
        store.dispatch()
        await asyncio.sleep(0)


def pulled(store: MessageStore, queue_offset: int) -> tuple[GetStatus, int, int]:
    result = store.get(*WHERE, queue_offset, 32, 1 << 20)
    return result.status, result.count, result.next_begin_offset


async def next_offset(store: MessageStore) -> int:
    await store.become_master()
    (out,) = store.append([message(topic=WHERE[0])])
    store.become_slave()
    return out.queue_offset


def test_a_slave_fills_a_gap_and_readers_skip_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        store = await slave(tmp_path)
        places = receive(store, [*LISTED, 12])
        await all_dispatched(store)
        assert (store.min_queue_offset(*WHERE), store.max_queue_offset(*WHERE)) == (0, 13)
        entries = queue_entries(store)[WHERE]
        assert [entry[0] for entry in entries if not is_filler(entry)] == places
        assert entries[5] == entries[6] == filler(places[5])
        assert pulled(store, 5) == (GetStatus.FOUND, 3, 13)
        assert store.get(*WHERE, 6, 1, 1 << 20).next_begin_offset == 8
        assert store.queue_offset_skips() == 2
        assert [line.levelname for line in caplog.records if "skips ahead" in line.message] == ["WARNING"]
        assert await store.offset_by_time(*WHERE, 1) == 0
        await store.stop()

    asyncio.run(scenario())


def test_a_reader_skips_a_gap_longer_than_one_scan(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await slave(tmp_path)
        receive(store, [0, 2500])
        await all_dispatched(store)
        seen, offset = [], 1
        while offset < 2501:
            status, _, following = pulled(store, offset)
            assert following > offset, "a reader that does not advance would never finish"
            seen.append(status)
            offset = following
        assert set(seen[:-1]) == {GetStatus.MESSAGE_WAS_REMOVING}
        assert seen[-1] is GetStatus.FOUND
        await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("dispatched", [True, False])
@pytest.mark.parametrize(
    ("queue_offsets", "due"),
    [
        (LISTED, 9),
        ([3, 4], 5),
        ([0, 1, 1, 0], 2),
        ([0, 5 + GAP_PLACES_MAX, 6 + GAP_PLACES_MAX], 3),
        ([0, 1 << 62, (1 << 62) + 1, 5], 6),
        ([1 << 62], 1),
        ([PLACE_MAX], PLACE_MAX + 1),
        ([-4, 0, -1, 2], 3),
    ],
)
def test_a_new_master_continues_at_the_end_of_its_queue_dispatched_or_not(
    tmp_path: Path, queue_offsets: list[int], due: int, dispatched: bool
) -> None:
    async def scenario() -> None:
        store = await slave(tmp_path)
        receive(store, queue_offsets)
        if dispatched:
            await all_dispatched(store)
            assert store.max_queue_offset(*WHERE) == due
        assert await next_offset(store) == due
        await all_dispatched(store)
        assert store.max_queue_offset(*WHERE) == due + 1
        await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["clean", "killed", "killed, nothing saved", "rebuilt"])
@pytest.mark.parametrize("queue_offsets", [LISTED, [5, 6, 40], [0, 1 << 62, 1 << 61, 3]])
def test_a_store_with_gaps_restarts_with_the_same_entries(
    tmp_path: Path, queue_offsets: list[int], how: str
) -> None:
    async def scenario() -> None:
        store = await slave(tmp_path / "store")
        receive(store, queue_offsets)
        await all_dispatched(store)
        expected = queue_entries(store)
        if how == "killed":
            await store._saved.sync()
            await store.flush()
            await store._save_checkpoint()
        if how.startswith("killed"):
            shutil.copytree(tmp_path / "store", tmp_path / "again")
        await store.stop()
        if not how.startswith("killed"):
            shutil.copytree(tmp_path / "store", tmp_path / "again")
        if how == "rebuilt":
            shutil.rmtree(tmp_path / "again" / "consumequeue")
        again = await slave(tmp_path / "again")
        await all_dispatched(again)
        assert queue_entries(again) == expected
        await again.stop()

    asyncio.run(scenario())


def test_a_truncation_after_a_gap_removes_the_gap(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await slave(tmp_path)
        places = receive(store, LISTED)
        await all_dispatched(store)
        await store.truncate(places[5] + 3)
        assert store.max_offset() == places[5]
        assert store.max_queue_offset(*WHERE) == 5
        assert await next_offset(store) == 5
        await store.truncate(0)
        assert store.queues() == [WHERE]
        assert store.max_queue_offset(*WHERE) == 0
        receive(store, [90])
        await all_dispatched(store)
        assert pulled(store, 90) == (GetStatus.FOUND, 1, 91)
        await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("topic", ["a/b", "..", "x" * 127 + "/"])
@pytest.mark.parametrize("queue_id", [0, -1])
def test_a_queue_with_an_invalid_folder_name_is_skipped(tmp_path: Path, topic: str, queue_id: int) -> None:
    async def scenario() -> None:
        store = await slave(tmp_path)
        receive(store, [0, 1], topic[:127], queue_id if topic != ".." else -1)
        receive(store, [0])
        await all_dispatched(store)
        assert pulled(store, 0) == (GetStatus.FOUND, 1, 1)
        await store.become_master()
        await store.stop()
        again = await slave(tmp_path)
        await again.stop()

    asyncio.run(scenario())


def test_a_queue_that_lost_its_folder_is_rebuilt_with_its_gaps(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await slave(tmp_path)
        for number in range(700):
            receive(store, [number], "Other")
            receive(store, [number if number < 300 else number + 5])
        await all_dispatched(store)
        assert store.max_offset() > 2 * SEGMENT
        await store.stop()
        (tmp_path / "abort").touch()
        again = await slave(tmp_path)
        assert again.max_queue_offset(*WHERE) == 705
        listed = queue_entries(again)
        await again.stop()
        (tmp_path / "abort").touch()
        (tmp_path / "checkpoint").write_bytes(
            Checkpoint(1 << 50, 1 << 50, 0, 0, again.confirm_offset()).encode()
        )
        shutil.rmtree(tmp_path / "consumequeue" / "TopicTest")
        again = await slave(tmp_path)
        assert queue_entries(again) == listed
        await again.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(40))
def test_a_queue_with_gaps_is_truncated_and_loaded_like_a_new_one(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    def opened() -> ConsumeQueue:
        return ConsumeQueue(RealSegmentDirectory(tmp_path), 400, "T", 0)

    async def scenario() -> None:
        queue = opened()
        records: list[tuple[int, int]] = []  # queue offset, physical offset; each has 100 bytes
        position, following = 0, chance.choice((0, 0, 3, 47))
        for _ in range(chance.randrange(5, 60)):
            choice = chance.random()
            if choice < 0.8 or not records:
                following += chance.choice((0, 0, 0, 1, 2, 19, 20, 21, 45))
                assert queue.append(following, position, 100, 7)
                records.append((following, position))
                following, position = following + 1, position + chance.choice((100, 300))
            else:
                limit = chance.randint(max(0, position - 3000), position)
                if choice < 0.9:
                    limit -= limit % 100
                    await queue.truncate(limit)
                else:
                    await queue.sync()
                    queue.close()
                    queue = opened()
                    await queue.load(0, limit, trusted=chance.random() < 0.5)
                records = [(offset, phy) for offset, phy in records if phy + 100 <= limit]
                position = records[-1][1] + 100 if records else 0
                following = records[-1][0] + 1 if records else following
            assert queue.max_queue_offset == (records[-1][0] + 1 if records else 0)
            assert queue.phy_end == (records[-1][1] + 100 if records else 0)
            if records:
                assert queue.min_queue_offset == records[0][0]
            places = range(queue.min_queue_offset, queue.max_queue_offset)
            held = {place: queue.entry(place) for place in places}
            assert {place: entry[0] for place, entry in held.items() if not is_filler(entry)} == dict(records)
            ends = [listed_end(entry) for entry in held.values()]
            assert ends == sorted(ends)
            for phy in (position // 2, position):
                below = [p + 100 for _, p in records if p + 100 <= phy] + [p for _, p in records if p <= phy]
                assert queue.boundary_at_or_below(phy) in (*below, -1)
        queue.raise_min(position // 2)
        if queue.min_queue_offset < queue.max_queue_offset:
            assert listed_start(queue.entry(queue.min_queue_offset)) >= position // 2

    asyncio.run(scenario())
