"""Old log and queues that left the page cache: a slow disk delays only the request that reads it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable
from pathlib import Path

import pytest

from messagestore.errors import QueueDamaged
from messagestore.log import files
from messagestore.messages import GetStatus
from messagestore.queues import consumequeue
from messagestore.queues.consumequeue import ENTRY
from messagestore.store.messagestore import MessageStore
from mqruntime import segments
from tests.unit.messagestore.storehelp import dispatch_all, in_loop, message, open_store, small_settings

COUNT = 100


class Disk:
    """While `lost`, nothing is in the page cache; reads wait for `may_read` and must not run in the event
    loop."""

    def __init__(self) -> None:
        self.lost = False
        self.may_read = threading.Event()
        self.may_read.set()
        self.reads = 0
        self.lost_at: tuple[int, int] | None = None
        self.looks: list[tuple[int, int]] = []
        self._pread = os.pread

    def in_page_cache(self, address: int, start: int, end: int) -> bool:
        self.looks.append((start, end))
        if self.lost_at is not None:
            return end <= self.lost_at[0] or self.lost_at[1] <= start
        return not self.lost

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        if self.lost:
            assert threading.current_thread() is not threading.main_thread(), "the loop waits for the disk"
            self.may_read.wait()
            self.reads += 1
        return self._pread(descriptor, size, offset)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(segments, "in_page_cache", made.in_page_cache)
    monkeypatch.setattr(os, "pread", made.pread)
    monkeypatch.setattr(files, "AT_HAND_BYTES", 1000)
    monkeypatch.setattr(consumequeue, "STEP_PLACES", 10)
    return made


async def stored(root: Path) -> MessageStore:
    settings = small_settings(message_index_enable=False, scrub_bytes_per_second=0, hot_segments=100)
    store = open_store(root, settings)
    await store.start()
    await store.become_master()
    for number in range(COUNT):
        assert store.append([message(bytes([number]) * 200)])[0].error is None
    dispatch_all(store)
    return store


async def ends_once_the_disk_reads(disk: Disk, work: Awaitable[object]) -> None:
    disk.may_read.clear()
    task = asyncio.ensure_future(work)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    disk.may_read.set()
    await task


@in_loop
async def test_the_entry_and_body_of_an_old_message_are_read_in_a_thread(tmp_path: Path, disk: Disk) -> None:
    store = await stored(tmp_path)
    disk.lost = True
    assert store.is_at_hand("TopicTest", 0, COUNT - 5, 32), "the last records are in memory"
    assert not store.get("TopicTest", 0, COUNT - 2, 1, 1 << 20).cold
    assert not store.is_at_hand("TopicTest", 0, 3, 32)
    await ends_once_the_disk_reads(disk, store.bring("TopicTest", 0, 3, 32))
    assert disk.reads == 5, "one read per file of the queue"
    result = store.get("TopicTest", 0, 3, 1, 1 << 20)
    assert result.cold, "in a hot segment, but not cached"
    await ends_once_the_disk_reads(disk, store.load(result))
    assert (result.status, bytes(result.buffers[0])[88:90]) == (GetStatus.FOUND, b"\3\3")
    disk.lost = False
    assert store.is_at_hand("TopicTest", 0, 3, 32)
    assert not store.get("TopicTest", 0, 3, 1, 1 << 20).cold
    await store.stop()


@in_loop
async def test_a_search_by_time_reads_the_disk_in_a_thread(tmp_path: Path, disk: Disk) -> None:
    store = await stored(tmp_path)
    first = await store.store_time_at("TopicTest", 0, 0)
    disk.lost = True
    await ends_once_the_disk_reads(disk, store.store_time_at("TopicTest", 0, 0))
    await ends_once_the_disk_reads(disk, store.offset_by_time("TopicTest", 0, first))
    assert await store.offset_by_time("TopicTest", 0, first) == 0
    disk.lost = False
    await store.stop()


@in_loop
async def test_log_that_left_the_page_cache_is_cold_for_a_slave(tmp_path: Path, disk: Disk) -> None:
    store = await stored(tmp_path)
    assert not store.is_cold(0)
    disk.lost = True
    assert store.is_cold(0) and not store.is_cold(store.max_offset() - 1)
    await store.stop()


@in_loop
async def test_adjacent_records_are_checked_together_unless_one_is_not_cached(
    tmp_path: Path, disk: Disk
) -> None:
    store = await stored(tmp_path)
    whole = store.get("TopicTest", 0, 3, 4, 1 << 20, lambda tags_code: True)
    assert (whole.count, len(whole.ranges)) == (4, 1), "adjacent"
    disk.looks.clear()
    wanted = iter([True, False] * 4)
    apart = store.get("TopicTest", 0, 3, 4, 1 << 20, lambda tags_code: next(wanted))
    size = whole.ranges[0][1] // 4
    start = whole.ranges[0][0]
    assert apart.ranges == [(start + 2 * size * each, size) for each in range(4)]
    assert disk.looks == [(start, start + 7 * size)] and not apart.cold
    assert [bytes(each)[88:90] for each in apart.buffers] == [bytes([each, each]) for each in (3, 5, 7, 9)]
    disk.lost_at = start + size, start + 2 * size
    wanted = iter([True, False] * 4)
    assert not store.get("TopicTest", 0, 3, 4, 1 << 20, lambda tags_code: next(wanted)).cold, (
        "it was not requested"
    )
    disk.lost_at = start + 2 * size, start + 3 * size
    wanted = iter([True, False] * 4)
    assert store.get("TopicTest", 0, 3, 4, 1 << 20, lambda tags_code: next(wanted)).cold
    await store.stop()


@in_loop
async def test_a_damaged_entry_is_checked_separately(tmp_path: Path, disk: Disk) -> None:
    store = await stored(tmp_path)
    record = store.get("TopicTest", 0, 3, 1, 1 << 20).ranges[0]
    queue = min((tmp_path / "consumequeue" / "TopicTest" / "0").iterdir())

    def fifth_leads_to(offset: int) -> None:
        with queue.open("r+b") as file:
            file.seek(4 * ENTRY.size)
            file.write(ENTRY.pack(offset, record[1], 0))

    fifth_leads_to(0)
    disk.lost_at = 0, 1
    assert store.get("TopicTest", 0, 3, 4, 1 << 20).cold
    disk.lost_at = None
    found = store.get("TopicTest", 0, 3, 4, 1 << 20)
    assert [bytes(each)[88:90] for each in found.buffers] == [b"\3\3", b"\0\0", b"\5\5"]
    fifth_leads_to(1 << 50)
    leads_nowhere = store.get("TopicTest", 0, 3, 4, 1 << 20)
    with pytest.raises(QueueDamaged, match="consumequeue/TopicTest/0"):
        await store.load(leads_nowhere)
    await store.stop()
