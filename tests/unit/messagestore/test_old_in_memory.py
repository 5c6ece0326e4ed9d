"""Messages older than the newest segments but in the page cache are returned at once, as copies."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from messagestore import record
from messagestore.messages import GetResult
from messagestore.queues import reading
from messagestore.store.messagestore import MessageStore
from mqruntime import segments
from mqruntime.turnbudget import TurnBudget
from tests.unit.messagestore.storehelp import dispatch_all, in_loop, master, message, nothing_cached

BODY_BYTES = 900


async def aged(root: Path) -> MessageStore:
    """A master with four messages in each segment of 4 KiB except the last one; odd messages have another
    topic."""
    store = await master(root, hot_segments=1)
    store.append([message(bytes([n]) * BODY_BYTES, "Odd" if n % 2 else "Even") for n in range(18)])
    dispatch_all(store)
    assert store.max_offset() > 4 * store.segment_size_bytes
    return store


def pulled(store: MessageStore, first: int, count: int, topic: str = "Even") -> GetResult:
    return store.get(topic, 0, first, count, 1 << 20)


def bodies(result: GetResult) -> list[int]:
    """The first byte of each found body."""
    found, content = [], b"".join(result.buffers)
    while content:
        found.append(record.decode(memoryview(content)).body[0])
        content = content[record.PREFIX.unpack_from(content)[0] :]
    return found


@in_loop
async def test_old_messages_in_memory_are_returned_at_once(tmp_path: Path) -> None:
    store = await aged(tmp_path)
    result = pulled(store, 0, 5)
    assert not result.cold and len(result.ranges) == 5, "in three segments"
    assert bodies(result) == [0, 2, 4, 6, 8]
    assert sum(map(len, result.buffers)) == sum(size for _, size in result.ranges)
    await store.stop()


@in_loop
async def test_a_reader_gets_copies_of_an_old_segment(tmp_path: Path) -> None:
    """Also of the newest segment, in a pull that began in an old one."""
    store = await aged(tmp_path)
    for result in (pulled(store, 0, 1), pulled(store, 0, 32)):
        assert result.buffers and all(isinstance(each.obj, bytes) for each in result.buffers)
    newest = pulled(store, 8, 1)
    assert newest.ranges[0][0] >= store.max_offset() - store.max_offset() % store.segment_size_bytes
    assert not isinstance(newest.buffers[0].obj, bytes)
    newest.buffers.clear()
    await store.stop()


@in_loop
async def test_old_messages_that_left_the_page_cache_are_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if only one of several messages is not cached."""
    store = await aged(tmp_path)
    one = pulled(store, 1, 1).ranges[0]
    assert one[0] + one[1] < store.segment_size_bytes

    def one_lost(address: int, start: int, end: int) -> bool:
        return end <= one[0] or one[0] + one[1] <= start

    monkeypatch.setattr(segments, "in_page_cache", one_lost)
    assert pulled(store, 0, 2).cold and pulled(store, 1, 1).cold
    assert bodies(between := pulled(store, 0, 2, "Odd")) == [1, 3] and not between.cold, "it is not requested"
    monkeypatch.setattr(segments, "in_page_cache", nothing_cached)
    result = pulled(store, 0, 3)
    assert result.cold and not result.buffers
    await store.load(result)
    assert bodies(result) == [0, 2, 4]
    await store.stop()


@in_loop
async def test_unchecked_old_bytes_are_not_returned_at_once(tmp_path: Path) -> None:
    store = await aged(tmp_path)
    store.integrity.begin_again(2 * store.segment_size_bytes)
    result = pulled(store, 0, 3)
    assert result.cold
    await store.load(result)
    assert not pulled(store, 0, 3).cold, "the load checked them"
    await store.stop()


@in_loop
async def test_the_bytes_copied_in_one_loop_turn_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "COPIED_BYTES_MAX", 3000)
    store = await aged(tmp_path)
    assert [pulled(store, 0, 2).cold, pulled(store, 0, 2).cold, pulled(store, 0, 1).cold] == [
        False,
        True,
        False,
    ]
    assert not pulled(store, 8, 1).cold, "a view needs no copy"
    await asyncio.sleep(0)
    assert not pulled(store, 0, 2).cold
    await asyncio.sleep(0)
    assert pulled(store, 0, 4).cold, "above the limit of one turn"
    await store.stop()


def test_a_budget_lasts_for_one_loop_turn() -> None:
    budget = TurnBudget(10)

    async def turns() -> list[bool]:
        taken = [budget.takes(6), budget.takes(5), budget.takes(4), budget.takes(1)]
        await asyncio.sleep(0)
        taken += [budget.takes(11), budget.takes(10), budget.takes(1)]
        await asyncio.sleep(0)
        return [*taken, budget.takes(1)]

    assert asyncio.run(turns()) == [True, False, True, False, False, True, False, True]
