"""Old log and old queues that the page cache has lost: a disk whose reads take their time holds nobody but who asked."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path

import pytest

from messagestore.log import commitlog
from messagestore.messages import GetStatus
from messagestore.queues import consumequeue
from messagestore.store import MessageStore
from mqruntime.segments import in_page_cache
from tests.unit.messagestore.storehelp import message, open_store, small_settings

COUNT = 100


def in_loop(scenario: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @wraps(scenario)
    def test(*args: object, **values: object) -> None:
        asyncio.run(scenario(*args, **values))  # type: ignore[arg-type]

    return test


class Disk:
    """While `lost` nothing is in the page cache; reads wait for `may_read`, and none comes from the event loop."""

    def __init__(self) -> None:
        self.lost = False
        self.may_read = threading.Event()
        self.may_read.set()
        self.reads = 0
        self._preadv, self._pread = os.preadv, os.pread

    def preadv(self, descriptor: int, buffers: list[bytearray], offset: int, flags: int) -> int:
        if self.lost:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return self._preadv(descriptor, buffers, offset, flags)

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        if self.lost:
            assert threading.current_thread() is not threading.main_thread(), "the loop waits for the disk"
            self.may_read.wait()
            self.reads += 1
        return self._pread(descriptor, size, offset)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(os, "preadv", made.preadv)
    monkeypatch.setattr(os, "pread", made.pread)
    monkeypatch.setattr(commitlog, "AT_HAND_BYTES", 1000)
    monkeypatch.setattr(consumequeue, "STEP_PLACES", 10)
    return made


async def stored(root: Path) -> MessageStore:
    settings = small_settings(message_index_enable=False, scrub_bytes_per_second=0, hot_segments=100)
    store = open_store(root, settings)
    await store.start()
    await store.become_master()
    for number in range(COUNT):
        assert store.append([message(bytes([number]) * 200)])[0].error is None
    store.set_confirm_offset(store.max_offset())
    while store.dispatch():
        pass
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
async def test_an_old_message_is_read_beside_the_loop_entries_and_body(tmp_path: Path, disk: Disk) -> None:
    store = await stored(tmp_path)
    disk.lost = True
    assert store.is_at_hand("TopicTest", 0, COUNT - 5, 32), "what was written last"
    assert not store.get("TopicTest", 0, COUNT - 2, 1, 1 << 20).cold
    assert not store.is_at_hand("TopicTest", 0, 3, 32)
    await ends_once_the_disk_reads(disk, store.bring("TopicTest", 0, 3, 32))
    assert disk.reads == 5, "a file of the queue each"
    result = store.get("TopicTest", 0, 3, 1, 1 << 20)
    assert result.cold, "in a hot segment, but lost"
    await ends_once_the_disk_reads(disk, store.load(result))
    assert (result.status, bytes(result.buffers[0])[88:90]) == (GetStatus.FOUND, b"\3\3")
    disk.lost = False
    assert store.is_at_hand("TopicTest", 0, 3, 32)
    assert not store.get("TopicTest", 0, 3, 1, 1 << 20).cold
    await store.stop()


@in_loop
async def test_a_search_by_time_waits_for_the_disk_alone(tmp_path: Path, disk: Disk) -> None:
    store = await stored(tmp_path)
    first = await store.store_time_at("TopicTest", 0, 0)
    disk.lost = True
    await ends_once_the_disk_reads(disk, store.store_time_at("TopicTest", 0, 0))
    await ends_once_the_disk_reads(disk, store.offset_by_time("TopicTest", 0, first))
    assert await store.offset_by_time("TopicTest", 0, first) == 0
    disk.lost = False
    await store.stop()


@in_loop
async def test_what_leaves_for_a_slave_is_read_beside_the_loop_when_it_is_lost(
    tmp_path: Path, disk: Disk
) -> None:
    store = await stored(tmp_path)
    assert not store.is_cold(0)
    disk.lost = True
    assert store.is_cold(0) and not store.is_cold(store.max_offset() - 1)
    await store.stop()


def test_a_file_system_that_cannot_tell_is_taken_to_hold_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    path = tmp_path / "file"
    path.write_bytes(b"content")
    with path.open("rb") as file:
        assert in_page_cache(file.fileno(), 0, 7)
        assert not in_page_cache(file.fileno(), 0, 8)
        monkeypatch.setattr(os, "preadv", cannot)
        assert in_page_cache(file.fileno(), 0, 7)
