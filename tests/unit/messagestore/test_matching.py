"""Queue reads that match message properties: in memory, from the disk, and with a damaged log or queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from messagestore.errors import QueueDamaged, RecordDamaged
from messagestore.messages import GetResult, GetStatus
from messagestore.queues import matching
from messagestore.queues.consumequeue import ENTRY
from messagestore.record import decode
from messagestore.store.messagestore import MessageStore
from mqruntime import segments
from tests.unit.messagestore.corruptedlogs import IN_BODY, flip, opened
from tests.unit.messagestore.storehelp import dispatch_all, in_loop, master, message, nothing_cached

COUNT = 40
QUEUE = "TopicTest", 0


def wanted(properties: bytes) -> bool:
    """Match every fourth message."""
    return b"n\x01yes\x02" in properties


async def filled(root: Path, **settings: int) -> MessageStore:
    """A master with four messages in each segment of 4 KiB."""
    store = await master(root, **settings)
    store.append([one(number) for number in range(COUNT)])
    dispatch_all(store)
    return store


def one(number: int):  # type: ignore[no-untyped-def]
    return message(bytes([number]) * 900, properties=b"n\x01%s\x02" % (b"no" if number % 4 else b"yes"))


def got(store: MessageStore, first: int, *, count: int = 32, size: int = 1 << 20) -> GetResult:
    return store.get_matching(*QUEUE, first, count, size, wanted)


def numbers(result: GetResult) -> list[int]:
    content, found = b"".join(result.buffers), []
    while content:
        record = decode(memoryview(content))
        found.append(record.body[0])
        content = content[record.total_size :]
    return found


@in_loop
async def test_matching_messages_are_found_and_others_are_skipped(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    result = got(store, 0)
    assert (result.status, result.next_begin_offset, numbers(result)) == (
        GetStatus.FOUND,
        COUNT,
        [*range(0, COUNT, 4)],
    )
    assert (numbers(got(store, 1, count=2)), got(store, 1, count=2).next_begin_offset) == ([4, 8], 9)
    assert numbers(got(store, 1, size=1)) == [4], "one message is always returned"
    nothing = got(store, 37)
    assert (nothing.status, nothing.next_begin_offset, nothing.cold) == (
        GetStatus.NO_MATCHED_MESSAGE,
        COUNT,
        False,
    )
    assert got(store, COUNT).status is GetStatus.OFFSET_OVERFLOW_ONE
    assert got(store, COUNT + 1).status is GetStatus.OFFSET_OVERFLOW_BADLY
    assert store.get_matching("Other", 0, 0, 32, 1, wanted).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    await store.stop()


@in_loop
async def test_one_response_scans_at_most_eight_hundred_messages(tmp_path: Path) -> None:
    store = await master(tmp_path)
    store.append([message(b"", properties=b"n\x01no\x02") for _ in range(900)])
    dispatch_all(store)
    result = got(store, 0)
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 800)
    await store.stop()


@in_loop
async def test_one_response_scans_a_limited_number_of_property_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(tmp_path)
    monkeypatch.setattr(matching, "JUDGED_BYTES_MAX", 20)
    assert (numbers(got(store, 1)), got(store, 1).next_begin_offset) == ([4], 5), (
        "five bytes each, and six of the last one"
    )
    read = await store.read_matching(*QUEUE, 1, 32, 1 << 20, wanted)
    assert (numbers(read), read.next_begin_offset) == ([4], 5)
    monkeypatch.setitem(wanted.__dict__, "conditions", 24)
    assert got(store, 1).next_begin_offset == 2, "24 conditions read them three times more"
    await store.stop()


@in_loop
async def test_properties_that_are_not_in_memory_are_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(tmp_path, hot_segments=1)
    monkeypatch.setattr(segments, "in_page_cache", nothing_cached)
    monkeypatch.setattr(matching, "PIECE_BYTES", 5_000)
    result = got(store, 1)
    assert (result.status, result.cold, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, True, 1)
    read = await store.read_matching(*QUEUE, 1, 32, 1 << 20, wanted)
    await store.load(read)
    assert (numbers(read), read.next_begin_offset) == ([4], 5), "the limit of one response"
    nothing = await store.read_matching(*QUEUE, 5, 32, 2_000, lambda properties: False)
    assert (nothing.status, nothing.cold, nothing.next_begin_offset) == (
        GetStatus.NO_MATCHED_MESSAGE,
        False,
        9,
    )
    await store.stop()


@in_loop
async def test_a_scan_ends_before_the_first_record_that_is_not_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(tmp_path, hot_segments=1)
    monkeypatch.setattr(matching, "LOOKED_AT_ONCE", 1)
    far = store.get("TopicTest", 0, 6, 1, 1 << 20).ranges[0][0]
    log = store._reader._log
    monkeypatch.setattr(type(log), "in_memory", lambda self, ranges: ranges[0][0] < far)
    assert (numbers(got(store, 0)), got(store, 0).next_begin_offset) == ([0, 4], 6)
    assert (got(store, 5).status, got(store, 5).next_begin_offset, got(store, 5).cold) == (
        GetStatus.NO_MATCHED_MESSAGE, 6, False,
    )  # fmt: skip
    assert got(store, 6).cold
    await store.stop()


@in_loop
async def test_a_damaged_record_is_an_error_and_is_not_skipped(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    places = [store.get("TopicTest", 0, number, 1, 1 << 20).ranges[0][0] for number in range(COUNT)]
    await store.stop()
    flip(tmp_path, places[9], at=IN_BODY)
    store = await opened(tmp_path)
    assert got(store, 5).cold, "none of it was checked"
    before = await store.read_matching(*QUEUE, 5, 32, 1 << 20, wanted)
    await store.load(before)
    assert (numbers(before), before.next_begin_offset) == ([8], 9)
    with pytest.raises(RecordDamaged):
        await store.read_matching(*QUEUE, 9, 32, 1 << 20, wanted)
    await store.stop()


@pytest.mark.parametrize("entry", [(1 << 40, 100, 0), (4, 1_000, 0), (0, -5, 0), (4_000, 200, 0)])
@in_loop
async def test_an_entry_that_points_to_no_record_fails_its_reader(
    tmp_path: Path, entry: tuple[int, int, int]
) -> None:
    store = await filled(tmp_path)
    await store.stop()
    store = await opened(tmp_path)
    path = tmp_path / "consumequeue" / "TopicTest" / "0" / f"{0:020}"
    with path.open("r+b") as file:  # a start would detect it and rebuild the queue
        file.seek(2 * ENTRY.size)
        file.write(ENTRY.pack(*entry))
    result = got(store, 1)
    if result.status is not GetStatus.FOUND:
        assert result.cold
        result = await store.read_matching(*QUEUE, 1, 32, 1 << 20, wanted)
    with pytest.raises(QueueDamaged):
        await store.load(result)
    await store.stop()


@in_loop
async def test_messages_deleted_by_retention_during_a_read_are_not_matched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(tmp_path, hot_segments=1)
    log = store._reader._log
    read_cold_each = type(log).read_cold_each

    async def trimmed_meanwhile(self, ranges):  # type: ignore[no-untyped-def]
        found = await read_cold_each(self, ranges)
        store._queues.find(*QUEUE).min_queue_offset = 8
        return found

    monkeypatch.setattr(type(log), "read_cold_each", trimmed_meanwhile)
    result = await store.read_matching(*QUEUE, 1, 32, 1 << 20, wanted)
    assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, 8)
    await store.stop()
