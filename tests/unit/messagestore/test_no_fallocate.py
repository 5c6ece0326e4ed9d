"""A file system without fallocate: blocks are allocated by writing zeros in a thread, ahead of the
appends."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from messagestore.log import commitlog
from messagestore.messages import PutStatus
from messagestore.store.messagestore import MessageStore
from messagestore.store.settings import StoreSettings
from messagestore.walker import SegmentWalk
from mqruntime import segments
from mqruntime.diskfull import RETRY_S
from tests.unit.messagestore.storehelp import in_loop, message, open_store, small_settings

SEGMENT, STEP, BODY = 1 << 20, 32 << 10, 1000
SETTINGS = small_settings(
    mapped_file_size_commit_log=SEGMENT, message_index_enable=False, mapped_file_size_consume_queue=20_000
)


class Disk:
    """`pwrite` of a file system without fallocate; only log segments are counted."""

    def __init__(self) -> None:
        self.written: Counter[str] = Counter()
        """Thread -> bytes that it wrote; `loop` is the event loop's thread."""
        self.room = 1 << 40
        self.may_write = threading.Event()
        self.may_write.set()
        self._pwrite = os.pwrite

    def fallocate(self, descriptor: int, start: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def pwrite(self, descriptor: int, content: bytes, offset: int) -> int:
        if "commitlog" not in os.readlink(f"/proc/self/fd/{descriptor}"):
            return self._pwrite(descriptor, content, offset)
        in_loop = threading.current_thread() is threading.main_thread()
        if not in_loop:
            self.may_write.wait()
        self.room -= len(content)
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.written["loop" if in_loop else "others"] += len(content)
        return self._pwrite(descriptor, content, offset)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(os, "posix_fallocate", made.fallocate)
    monkeypatch.setattr(os, "pwrite", made.pwrite)
    for module in (segments, commitlog):
        monkeypatch.setattr(module, "RESERVE_STEP_BYTES", STEP)
    monkeypatch.setattr(segments, "COPY_STEP_BYTES", STEP // 4)
    return made


async def master(root: Path, settings: StoreSettings = SETTINGS) -> MessageStore:
    store = open_store(root, settings)
    await store.start()
    await store.become_master()
    return store


async def prepared(store: MessageStore) -> None:
    while store._log.wants_next():  # noqa: ASYNC110 - the disk is real, so is the waiting
        await asyncio.sleep(0)


@in_loop
async def test_the_loop_allocates_one_step_of_blocks_and_threads_the_rest(tmp_path: Path, disk: Disk) -> None:
    store = await master(tmp_path)
    store.append([message(bytes(BODY))])
    await prepared(store)
    assert disk.written == {"loop": STEP, "others": SEGMENT - STEP}
    (file,) = (tmp_path / "commitlog").iterdir()
    assert file.stat().st_blocks * 512 >= SEGMENT
    while store.max_offset() <= SEGMENT // 2:
        store.append([message(bytes(BODY))])
    await prepared(store)
    assert len(list((tmp_path / "commitlog").iterdir())) == 2
    assert disk.written == {"loop": STEP, "others": 2 * SEGMENT - STEP}
    await store.stop()


@in_loop
async def test_appends_faster_than_block_allocation_lose_no_byte(tmp_path: Path, disk: Disk) -> None:
    store = await master(tmp_path)
    bodies = [bytes([1 + number % 255]) * BODY for number in range(3 * SEGMENT // BODY)]
    for number, body in enumerate(bodies):
        assert store.append([message(body)])[0].error is None
        if number % 7 == 0:
            await asyncio.sleep(0)
    assert disk.written["loop"] <= store.max_offset() + STEP * 4
    await prepared(store)
    end, position, found = store.max_offset(), 0, []
    while position < end:
        view, start = store._log.segment_view(position)
        walk = SegmentWalk(view, start, position, end)
        found += [offset for offset, _ in walk]
        position = walk.position if walk.position >= end else start + SEGMENT
    assert len(found) == len(bodies)
    await store.stop()
    again = open_store(tmp_path, SETTINGS)
    assert (await again.start()).max_offset == end
    await again.stop()


@in_loop
async def test_a_full_disk_is_detected_before_a_send_is_acknowledged(tmp_path: Path, disk: Disk) -> None:
    store = await master(tmp_path)
    disk.room = 3 * STEP
    errors = [store.append([message(bytes(BODY))])[0].error for _ in range(10)]
    assert errors == [None] * 10
    while not store._log._segment_write.refused:  # noqa: ASYNC110
        await asyncio.sleep(0)
    errors = [
        store.append([message(bytes(BODY))])[0].error for _ in range(2 * STEP // BODY, 4 * STEP // BODY)
    ]
    assert errors[-1] is PutStatus.SERVICE_NOT_AVAILABLE
    end = store.max_offset()
    assert end <= 3 * STEP
    assert not store._log.has_room_for(STEP)
    disk.room = 1 << 40
    await asyncio.sleep(RETRY_S)
    await prepared(store)
    assert store.append([message(bytes(BODY))])[0].physical_offset == end
    await store.stop()


@in_loop
async def test_a_log_opens_after_a_kill_during_block_allocation(tmp_path: Path, disk: Disk) -> None:
    store = await master(tmp_path)
    disk.may_write.clear()
    (sent,) = store.append([message(bytes(BODY))])
    await store.flush()
    copy = tmp_path / "copy"
    (copy / "commitlog").mkdir(parents=True)
    (file,) = (tmp_path / "commitlog").iterdir()
    (copy / "commitlog" / file.name).write_bytes(file.read_bytes())
    (copy / "abort").touch()
    disk.may_write.set()
    again = await master(copy)
    assert again.max_offset() == sent.end_offset
    (after,) = again.append([message(bytes(BODY))])
    assert (after.error, after.physical_offset) == (None, sent.end_offset)
    await prepared(again)
    await again.stop()
    await store.stop()


@in_loop
async def test_a_store_stops_during_block_allocation(tmp_path: Path, disk: Disk) -> None:
    store = await master(tmp_path)
    disk.may_write.clear()
    store.append([message(bytes(BODY))])
    await asyncio.sleep(0)
    await store.stop()
    disk.may_write.set()
    again = open_store(tmp_path, SETTINGS)
    assert (await again.start()).clean
    await again.stop()


@in_loop
async def test_a_truncation_allocates_erased_blocks_in_a_thread(tmp_path: Path, disk: Disk) -> None:
    store = await master(tmp_path)
    sent = store.append([message(bytes([7]) * BODY) for _ in range(300)])
    await prepared(store)
    await store.stop()
    again = open_store(tmp_path, SETTINGS)  # it does not know which blocks are allocated
    await again.start()
    disk.written.clear()
    kept = sent[9].end_offset
    assert await again.truncate(kept) == kept
    assert disk.written["loop"] == 0 and disk.written["others"] >= sent[-1].end_offset - kept
    assert not any(again._log.segment_view(0)[0][kept:])
    await again.stop()
