"""Retention moves up the start of a store: deleted files, kept files, and the view of readers."""

from __future__ import annotations

import asyncio
import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from messagestore.errors import OffsetOutOfRange
from messagestore.messages import GetStatus
from messagestore.queues.ends import FILE as ENDS_FILE
from messagestore.store.trimming import Trimmed
from mqruntime import segments
from mqruntime.realruntime import real_runtime
from mqruntime.segments import RealSegmentDirectory
from tests.unit.messagestore.storehelp import (
    SEGMENT,
    dispatch_all,
    filled,
    in_loop,
    master,
    message,
    names,
    nothing_cached,
    open_store,
    queue_entries,
    saved,
    small_settings,
)


def always() -> bool:
    return True


def never() -> bool:
    return False


@in_loop
@pytest.mark.parametrize("asked", [1, 2])
async def test_queues_keep_entries_that_a_late_hold_protects(tmp_path: Path, asked: int) -> None:
    """The hold comes before the queues are trimmed, or after that."""
    store = await filled(tmp_path)
    listed = queue_entries(store)
    first = {key: store.min_queue_offset(*key) for key in listed}
    answers = iter([True] * (asked - 1) + [False])
    assert await store.begin_at(2 * SEGMENT, lambda: next(answers)) == Trimmed(0, 0, 0)

    assert next(answers, None) is None
    assert queue_entries(store) == listed
    assert {key: store.min_queue_offset(*key) for key in listed} == first
    assert (await store.begin_at(2 * SEGMENT, always)).segments == 2
    await store.stop()


@in_loop
async def test_queues_keep_entries_when_a_full_disk_prevents_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new log start cannot be written."""
    store = await filled(tmp_path)
    listed, first = queue_entries(store), store.min_queue_offset("TopicTest", 0)

    async def no_room(offset: int) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(store.trimming, "_moves_up", no_room)
        with pytest.raises(OSError, match="no room"):
            await store.begin_at(2 * SEGMENT, always)
    assert queue_entries(store) == listed
    assert store.min_queue_offset("TopicTest", 0) == first
    assert (await store.begin_at(2 * SEGMENT, always)).segments == 2
    await store.stop()


@in_loop
async def test_segments_are_deleted_and_readers_get_the_new_start_of_the_store(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    [first_entry, *_] = [e for e in queue_entries(store)["TopicTest", 0] if e[0] >= 2 * SEGMENT]
    assert (await store.begin_at(2 * SEGMENT, always)).segments == 2

    assert store.min_offset() == 2 * SEGMENT
    assert names(tmp_path, "commitlog")[0] == 2 * SEGMENT
    first = store.min_queue_offset("TopicTest", 0)
    assert store.entries("TopicTest", 0, first, 1)[0][:3] == first_entry
    too_small = store.get("TopicTest", 0, first - 1, 32, 4096)
    assert (too_small.status, too_small.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, first)
    assert store.get("TopicTest", 0, first, 1, 4096).status is GetStatus.FOUND
    assert await store.message_at(0) is None
    assert await store.store_time_at("TopicTest", 0, first - 1) == -1
    assert await store.store_time_at("TopicTest", 0, first) > 0
    assert await store.offset_by_time("TopicTest", 0, 0) == first
    await store.stop()


@in_loop
async def test_a_queue_with_all_messages_deleted_continues_its_offsets(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    await store.begin_at(SEGMENT, always)
    assert store.min_queue_offset("TopicTest", 1) == store.max_queue_offset("TopicTest", 1) == 3
    await store.stop()

    store = open_store(tmp_path, small_settings(max_index_num=16, max_hash_slot_num=5))
    await store.start()
    assert store.min_queue_offset("TopicTest", 1) == store.max_queue_offset("TopicTest", 1) == 3
    await store.become_master()
    [appended] = store.append([message(b"new", queue_id=1)])
    assert appended.queue_offset == 3
    await store.stop()


@in_loop
async def test_a_killed_store_that_lost_an_emptied_queue_assigns_no_offset_twice(
    tmp_path: Path,
) -> None:
    """The stored ends were of an offset that retention had since deleted, so they were ignored (cluster seed
    7034)."""
    store = await filled(tmp_path)
    await store._saved.save_ends()
    store.append([message(bytes(400)) for _ in range(20)])
    await saved(store)
    begin = store._log.segment_start(store.max_offset())
    await store.begin_at(begin, always)
    assert store.min_offset() == begin
    await store._tasks.stop()
    await store._close()
    shutil.rmtree(tmp_path / "consumequeue/TopicTest/1")

    store = open_store(tmp_path, small_settings(max_index_num=16, max_hash_slot_num=5))
    await store.start()
    await store.become_master()
    [appended] = store.append([message(b"new", queue_id=1)])
    assert appended.queue_offset == 3
    await store.stop()


@in_loop
async def test_a_truncation_while_ends_are_stored_delays_the_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(tmp_path)
    queues = store._saved._queues
    spans_at = queues.spans_at

    def cut_meanwhile(position: int) -> Any:
        store._saved._cuts += 1
        return spans_at(position)

    with monkeypatch.context() as patched:
        patched.setattr(queues, "spans_at", cut_meanwhile)
        await store.begin_at(3 * SEGMENT, always)
    assert store.min_offset() == 0
    await store.begin_at(3 * SEGMENT, always)
    assert store.min_offset() == 3 * SEGMENT
    await store.stop()


@in_loop
async def test_a_full_disk_does_not_prevent_deletion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await filled(tmp_path)

    replace = store._saved._files.replace

    async def full(name: str, data: bytes) -> None:
        if name == ENDS_FILE:
            raise OSError(errno.ENOSPC, "No space left on device", name)
        await replace(name, data)

    with monkeypatch.context() as patched:
        patched.setattr(store._saved._files, "replace", full)
        await store.begin_at(3 * SEGMENT, always)
    assert store.min_offset() == 3 * SEGMENT
    await store.stop()


@in_loop
async def test_queue_and_index_files_are_deleted_except_the_last_ones(tmp_path: Path) -> None:
    store = await filled(tmp_path, mapped_file_size_consume_queue=100)  # 5 entries a file
    queue_files, index_files = names(tmp_path, "consumequeue/TopicTest/0"), names(tmp_path, "index")
    trimmed = await store.begin_at(4 * SEGMENT, always)
    assert trimmed.segments == 4 and trimmed.queue_files > 3 and trimmed.index_files > 0

    left = names(tmp_path, "consumequeue/TopicTest/0")
    assert left == queue_files[-len(left) :]
    first = store.min_queue_offset("TopicTest", 0)
    assert left[0] // 20 <= first < left[0] // 20 + 5
    assert len(names(tmp_path, "index")) == len(index_files) - trimmed.index_files >= 1
    found = await store.find_by_key("TopicTest", "k", 100, 0, 1 << 62)
    assert len(found) == store.max_queue_offset("TopicTest", 0) - first
    await store.stop()
    assert names(tmp_path, "consumequeue/TopicTest/1") == [0], "the last file stores the next offset"


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_with_a_later_start_opens_again(tmp_path: Path, clean: bool) -> None:
    async def first_life() -> dict[Any, Any]:
        store = await filled(tmp_path)
        await store.begin_at(3 * SEGMENT, always)
        entries = queue_entries(store)
        if clean:
            await store.stop()
        else:
            await store._tasks.stop()
            await store._close()
        return entries

    async def second_life(entries: dict[Any, Any]) -> None:
        store = open_store(tmp_path, small_settings(max_index_num=16, max_hash_slot_num=5))
        report = await store.start()
        assert (report.clean, report.min_offset) == (clean, 3 * SEGMENT)
        assert queue_entries(store) == entries
        assert await store.begin_at(4 * SEGMENT, always) == Trimmed(1, 0, 1)
        await store.stop()

    asyncio.run(second_life(asyncio.run(first_life())))


@pytest.mark.parametrize("checkpoint", ["gone", "empty", "erased"])
def test_a_killed_store_without_its_checkpoint_keeps_its_remaining_segments(
    tmp_path: Path, checkpoint: str
) -> None:
    """Such a log once counted as a new one that had lost its first file in a power cut, and was deleted."""

    async def killed() -> tuple[int, dict[Any, Any]]:
        store = await filled(tmp_path)
        await store.begin_at(3 * SEGMENT, always)
        end, entries = store.max_offset(), queue_entries(store)
        await store._tasks.stop()
        await store._close()
        return end, entries

    async def started(end: int, entries: dict[Any, Any]) -> None:
        store = open_store(tmp_path, small_settings(max_index_num=16, max_hash_slot_num=5))
        await store.start()
        assert (store.min_offset(), store.max_offset()) == (3 * SEGMENT, end)
        await store.become_master()
        dispatch_all(store)
        assert queue_entries(store) == entries
        await store.stop()

    end, entries = asyncio.run(killed())
    path = tmp_path / "checkpoint"
    if checkpoint == "gone":
        path.unlink()
    else:
        path.write_bytes(b"" if checkpoint == "empty" else bytes(4096))
    asyncio.run(started(end, entries))


@in_loop
async def test_no_segment_above_the_checkpoint_is_deleted(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    checkpointed = store.vouched_offset()
    while store.max_offset() < 8 * SEGMENT:
        store.append([message(bytes(400))])
    dispatch_all(store)
    await store.flush()
    assert store.confirm_offset() > 7 * SEGMENT > checkpointed, (
        "confirmed and flushed, but not in the checkpoint"
    )
    await store.begin_at(7 * SEGMENT, always)
    assert store.min_offset() == 0
    await store.begin_at(checkpointed - checkpointed % SEGMENT, never)
    assert store.min_offset() == 0, "a segment with a new reader stays"
    await store.begin_at(checkpointed - checkpointed % SEGMENT, always)
    assert store.min_offset() == checkpointed - checkpointed % SEGMENT
    await store.stop()


@in_loop
async def test_a_view_of_a_deleted_segment_stays_readable(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    held = store.read(0, 200)
    before = bytes(held)
    await store.begin_at(2 * SEGMENT, always)
    await asyncio.sleep(0.05)
    assert bytes(held) == before
    with pytest.raises(OffsetOutOfRange):
        store.read(0, 200)
    with pytest.raises(OffsetOutOfRange):
        await store.read_cold(SEGMENT, 10)
    await store.stop()
    assert bytes(held) == before


@in_loop
async def test_a_cold_read_of_a_deleted_segment_is_out_of_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "in_page_cache", nothing_cached)
    store = await filled(tmp_path)
    result = store.get("TopicTest", 0, 0, 1, 4096)
    assert result.cold
    await store.begin_at(2 * SEGMENT, always)
    with pytest.raises(OffsetOutOfRange):
        await store.load(result)
    await store.stop()


@in_loop
async def test_a_disk_that_refuses_to_delete_leaves_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(tmp_path)
    directory, refused = store._log._directory, []
    delete = RealSegmentDirectory.delete

    async def fails_once(self: RealSegmentDirectory, name: str) -> None:
        if self is directory and not refused:
            refused.append(name)
            raise OSError(errno.EIO, "disk")
        await delete(self, name)

    monkeypatch.setattr(RealSegmentDirectory, "delete", fails_once)
    with pytest.raises(OSError, match="disk"):
        await store.begin_at(3 * SEGMENT, always)
    assert names(tmp_path, "commitlog")[0] == 0, "deleting a later one would leave a gap"
    assert store.min_offset() == 3 * SEGMENT
    assert (await store.begin_at(store.min_offset(), always)).segments == 3
    assert names(tmp_path, "commitlog")[0] == 3 * SEGMENT
    await store.stop()


def test_a_log_started_above_0_and_killed_at_once_is_kept(tmp_path: Path) -> None:
    """Without a checkpoint it would count as a log that lost its start in a power cut."""

    async def killed() -> bytes:
        donor = await master(tmp_path / "donor")
        donor.append([message(b"x")])
        content = bytes(donor.read(0, donor.max_offset()))
        await donor.stop()
        store = open_store(tmp_path / "slave")
        await store.start()
        await store.begin_empty_at(SEGMENT)
        store.write_view(SEGMENT, 1)
        await store.begin_empty_at(3 * SEGMENT)  # at the next connection: the master has deleted more
        record = bytearray(content)
        record[28:36] = (3 * SEGMENT).to_bytes(8, "big")
        store.write_view(3 * SEGMENT, len(record))[:] = record
        store.advance(3 * SEGMENT + len(record))
        await store._tasks.stop()
        await store._close()
        return bytes(record)

    async def started(record: bytes) -> None:
        store = open_store(tmp_path / "slave")
        await store.start()
        assert (store.min_offset(), store.max_offset()) == (3 * SEGMENT, 3 * SEGMENT + len(record))
        assert bytes(store.read(3 * SEGMENT, len(record))) == record
        await store.stop()

    asyncio.run(started(asyncio.run(killed())))


def test_a_log_that_starts_below_an_earlier_planned_start_is_kept(tmp_path: Path) -> None:
    """It got no byte from the former master, and the next master has more log."""

    async def killed() -> int:
        store = open_store(tmp_path)
        await store.start()
        await store.begin_empty_at(3 * SEGMENT)
        await store.begin_empty_at(0)
        await store.become_master()
        store.append([message(b"x")])
        end = store.max_offset()
        await store._tasks.stop()
        await store._close()
        return end

    async def started(end: int) -> None:
        store = open_store(tmp_path)
        await store.start()
        assert (store.min_offset(), store.max_offset()) == (0, end)
        await store.stop()

    asyncio.run(started(asyncio.run(killed())))


@pytest.mark.parametrize("leads", [True, False])
def test_a_log_below_an_earlier_planned_start_that_lost_its_first_file_is_emptied(
    tmp_path: Path, leads: bool
) -> None:
    """Otherwise the replica catches up without the data lost in the power cut and may be elected."""

    async def cut_off() -> None:
        store = open_store(tmp_path)
        await store.start()
        await store.begin_empty_at(3 * SEGMENT)
        if not leads:
            await store.begin_empty_at(0)
        await store.become_master()
        while store.max_offset() < 2 * SEGMENT:
            store.append([message(b"x" * 500)])
        await store._tasks.stop()
        await store._close()

    async def started() -> None:
        store = open_store(tmp_path)
        await store.start()
        assert (store.min_offset(), store.max_offset()) == (0, 0)
        await store.stop()

    asyncio.run(cut_off())
    (tmp_path / "commitlog" / f"{0:020}").unlink()
    asyncio.run(started())


@in_loop
async def test_deleted_segments_are_neither_unchecked_nor_damaged(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    await store.stop()
    with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(150)
        file.write(b"bad")
    store = open_store(tmp_path, small_settings(max_index_num=16, max_hash_slot_num=5))
    await store.start()
    assert await store.check(0, 500) is not None
    assert store.integrity.damages
    await store.begin_at(2 * SEGMENT, always)
    assert not store.integrity.damages
    assert all(each.start >= 2 * SEGMENT for each in store.integrity.unchecked.ranges)
    await store.stop()


@in_loop
async def test_the_age_of_a_segment_comes_from_the_records_after_it(tmp_path: Path) -> None:
    store = await filled(tmp_path, segments=3)
    [one, two] = await store.oldest_segments(2)
    assert (one.start, one.end, two.end) == (0, SEGMENT, 2 * SEGMENT)
    assert one.newest_ms is not None and two.newest_ms is not None and one.newest_ms <= two.newest_ms
    assert [segment.end for segment in await store.oldest_segments(10)] == [SEGMENT, 2 * SEGMENT, 3 * SEGMENT]
    store._log.segment_view(SEGMENT)[0][4:8] = b"bad!"
    [one, _] = await store.oldest_segments(2)
    assert one.newest_ms is None
    await store.stop()


def test_a_deleted_file_is_released_once_it_has_no_reader(tmp_path: Path) -> None:
    async def scenario() -> None:
        directory = real_runtime(tmp_path).segments.subdirectory("some")
        file = directory.create("0", 8192)
        view = file.view()[:10]
        await directory.delete("0")
        release = asyncio.ensure_future(file.release())
        await asyncio.sleep(0.05)
        assert not release.done() and bytes(view) == bytes(10)
        view.release()
        await release

    asyncio.run(scenario())


@in_loop
async def test_a_log_that_ends_with_the_segment_to_delete_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was truncated to there after the decision; a slave whose disk is too full for the next segment has
    such a log too."""
    store = await filled(tmp_path)
    queues = store.trimming._queues
    raise_min = queues.raise_min

    async def cut_meanwhile(log_min: int) -> None:
        await raise_min(log_min)
        await store.truncate(2 * SEGMENT)

    monkeypatch.setattr(queues, "raise_min", cut_meanwhile)
    assert await store.begin_at(2 * SEGMENT, always) == Trimmed(0, 0, 0)
    assert (store.min_offset(), store.max_offset()) == (0, 2 * SEGMENT)
    await store.stop()


@in_loop
async def test_a_log_that_is_being_truncated_keeps_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A truncation that waits for the disk has a fixed end, which may be below the new start."""
    store = await filled(tmp_path)
    may_cut, cuts = asyncio.Event(), asyncio.Event()
    announce = store._saved.announce_cut

    async def announced(offset: int) -> None:
        cuts.set()
        await may_cut.wait()
        await announce(offset)

    monkeypatch.setattr(store._saved, "announce_cut", announced)
    cut = asyncio.ensure_future(store.truncate(SEGMENT))
    await cuts.wait()
    assert await store.begin_at(2 * SEGMENT, always) == Trimmed(0, 0, 0)
    may_cut.set()
    await cut
    assert (store.min_offset(), store.max_offset()) == (0, SEGMENT)
    await store.stop()
