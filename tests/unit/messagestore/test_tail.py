"""The undispatched tail of a log may be a whole catch-up: it is walked once, in slices, and other tasks run
in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from messagestore import record
from messagestore.errors import StoreCorrupted, StoreFailed
from messagestore.messages import MessageToStore
from messagestore.store import tail
from messagestore.store.messagestore import MessageStore
from messagestore.store.tail import SLICE_RECORDS, Walked
from tests.unit.messagestore.storehelp import (
    golden_segments,
    message,
    not_expected,
    open_store,
    small_settings,
    worked,
)

RECORDS = 8 * SLICE_RECORDS
QUEUES = 5


@contextmanager
def turns_of_others() -> Iterator[list[int]]:
    """One entry for each turn of another task; the caller uses its value."""
    turns: list[int] = [0]

    async def other() -> None:
        while True:
            turns.append(0)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    yield turns
    task.cancel()


async def caught_up(root: Path, hot_segments: int = 2, on_fatal: Any = not_expected) -> MessageStore:
    """A slave that has dispatched none of its records."""
    settings = small_settings(mapped_file_size_commit_log=256 << 10, hot_segments=hot_segments)
    store = open_store(root, settings, on_fatal)
    await store.start()
    await store.become_master()
    messages = [message(b"x" * (number % 7), queue_id=number % QUEUES) for number in range(SLICE_RECORDS)]
    for _ in range(RECORDS // SLICE_RECORDS):
        assert store.append(messages)[-1].error is None
    store.become_slave()
    return store


@pytest.mark.parametrize("hot_segments", [1, 100])
def test_other_tasks_run_while_an_undispatched_log_is_walked(tmp_path: Path, hot_segments: int) -> None:
    async def scenario() -> None:
        store = await caught_up(tmp_path, hot_segments)
        with turns_of_others() as turns:
            end = store.max_offset()
            assert await store.truncate(end) == end
        assert len(turns) > RECORDS // SLICE_RECORDS
        await store.stop()

    asyncio.run(scenario())


def test_a_role_change_reads_each_record_once_and_few_per_loop_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store = await caught_up(tmp_path)
        with turns_of_others() as turns:

            def counted(buffer: record.Buffer, at: int, left: int, offset: int) -> object:
                turns[-1] += 1
                return record.queue_head(buffer, at, left, offset)

            monkeypatch.setattr(tail, "queue_head", counted)
            store.set_confirm_offset(store.max_offset())
            await store.truncate(store.max_offset())
            await store.become_master()
            await store.become_master()
        segments = store.max_offset() // store.segment_size_bytes + 1
        assert RECORDS // 2 < sum(turns) <= RECORDS + 2 * segments
        assert max(turns) <= SLICE_RECORDS
        (out,) = store.append([message(queue_id=3)])
        assert out.queue_offset == len(
            [None for number in range(RECORDS) if number % SLICE_RECORDS % QUEUES == 3]
        )
        await store.stop()

    asyncio.run(scenario())


def test_records_undispatched_at_a_promotion_are_dispatched_afterwards(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await caught_up(tmp_path)
        store.set_confirm_offset(store.max_offset())
        promotion = asyncio.create_task(store.become_master())
        await asyncio.sleep(0)
        while not promotion.done():
            assert store.dispatched_offset() < store.max_offset() // 4, "promotion comes first"
            await asyncio.sleep(0)
        while store.dispatch():
            pass
        assert sum(store.max_queue_offset("TopicTest", queue_id) for queue_id in range(QUEUES)) == RECORDS
        await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(30))
def test_truncations_with_concurrent_dispatch_keep_the_next_offsets_correct(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)

    async def scenario() -> None:
        store = open_store(tmp_path, small_settings(hot_segments=chance.choice((1, 2, 9))))
        await store.start()
        await store.become_master()
        log: list[tuple[int, int, int, int]] = []  # queue, queue offset, start, end
        for _ in range(60):
            choice = chance.random()
            if choice < 0.6:
                queue_id = chance.randrange(3)
                sent = MessageToStore("T", queue_id, bytes(chance.choice((5, 300, 2500))))
                (out,) = store.append([sent])
                assert out.queue_offset == sum(held[0] == queue_id for held in log)
                log.append((queue_id, out.queue_offset, out.physical_offset, out.end_offset))
            elif choice < 0.8:
                store.set_confirm_offset(chance.randint(0, store.max_offset()))
                if chance.random() < 0.5:
                    await asyncio.sleep(0)
            else:
                store.become_slave()
                cut = chance.randint(0, store.max_offset())
                if chance.random() < 0.3:
                    await store.truncate(store.max_offset())
                whole = await store.truncate(cut)
                log = [held for held in log if held[3] <= cut]
                assert (log[-1][3] if log else 0) <= whole <= cut
                await store.become_master()
        await store.stop()

    asyncio.run(scenario())


def test_records_dispatched_during_a_truncation_use_up_no_queue_offsets(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        store = open_store(tmp_path, small_settings(hot_segments=1))
        await store.start()
        await store.become_master()
        first, *_ = [store.append([message(bytes(1000))])[0] for _ in range(12)]
        store.set_confirm_offset(store.max_offset())
        assert store.is_cold(0) and store.dispatched_offset() == 0
        log = store._log
        read_file = log.read_file

        async def dispatched_meanwhile(offset: int, end: int) -> bytes:
            content = await read_file(offset, end)
            while store.dispatch():
                pass
            return content

        store.become_slave()
        log.read_file = dispatched_meanwhile  # type: ignore[method-assign]
        assert await store.truncate(first.end_offset) == first.end_offset
        await store.become_master()
        (out,) = store.append([message()])
        assert (out.physical_offset, out.queue_offset) == (first.end_offset, 1)
        await store.stop()

    asyncio.run(scenario())


def test_a_record_longer_than_one_cold_read_is_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "COLD_STEP_BYTES", 200)

    async def scenario() -> None:
        store = open_store(tmp_path, small_settings(hot_segments=1))
        await store.start()
        await store.become_master()
        for body in (5, 1000, 50, 3000, 3000, 3000, 10, 10):
            assert store.append([message(bytes(body))])[0].error is None
        end = store.max_offset()
        await store.become_master()
        (out,) = store.append([message()])
        assert (out.physical_offset, out.queue_offset) == (end, 8)
        await store.stop()

    asyncio.run(scenario())


def test_queue_head_agrees_with_queue_facts(tmp_path: Path) -> None:
    chance = random.Random(5)
    buffers = [*golden_segments("clean-shutdown").values(), *golden_segments("after-kill-9").values()]
    ipv6 = worked()
    ipv6.sys_flag, ipv6.born_host = record.BORN_HOST_IPV6, record.pack_host("::1", 5)
    long_topic = worked()
    long_topic.topic = "%RETRY%" + "g" * 200
    whole = [
        record.encode(worked()),
        record.encode(ipv6),
        record.encode(long_topic),
        record.encode_blank(900),
    ]
    cases = [(bytes(buffer[at : at + 300]), at) for buffer in buffers for at in range(0, 20_000, 997)]
    for content in whole:
        cases += [(content[:cut], 4096) for cut in range(0, len(content), 3)] + [(content + bytes(50), 4096)]
        for _ in range(3000):
            torn = bytearray(content + chance.randbytes(40))
            torn[chance.randrange(len(content))] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
            cases.append((bytes(torn), 4096))
    for content, offset in cases:
        for left in (len(content), len(content) + 700, max(len(content) - 30, 0), 900):
            facts = record.queue_facts(content, 0, left, offset)
            expected = facts if isinstance(facts, int) else tuple(facts)[:6]
            assert record.queue_head(content, 0, left, offset) == expected


def test_a_walk_ends_at_an_invalid_record() -> None:
    content = record.encode(worked())
    walked = Walked(4096, lambda topic, queue_id: 0)
    assert walked.slice(content + bytes(1000), 4096, 8192, 4096 + 900) == record.INVALID
    assert walked.position == 4096 + len(content)
    assert walked.next_offsets == {(b"TopicTest", 1): 4}
    assert Walked(4096, lambda topic, queue_id: 0).slice(content, 4096, 8192, 4096 + 50) == len(content)


@pytest.mark.parametrize("hot_segments", [1, 100])
def test_confirmed_records_are_not_truncated_for_damage_found_at_a_promotion(
    tmp_path: Path, hot_segments: int
) -> None:
    """A replica that still dispatches becomes master; the header of an undispatched record is corrupted."""

    async def scenario() -> None:
        store = await caught_up(tmp_path, hot_segments)
        end = store.max_offset()
        damaged = await store.truncate(end // 2)
        failures: list[BaseException] = []
        store = await caught_up(tmp_path / "corrupted", hot_segments, failures.append)
        await store.flush()
        segment, at = divmod(damaged, store.segment_size_bytes)
        name = f"{segment * store.segment_size_bytes:020}"
        with (tmp_path / "corrupted" / "commitlog" / name).open("r+b") as file:
            file.seek(at + record.PHYSICAL_OFFSET_AT)
            file.write(b"\xff")
        store.set_confirm_offset(end - 1)
        with pytest.raises(StoreFailed) as failed:
            await store.become_master()
        assert isinstance(failed.value.cause, StoreCorrupted) and failures
        assert (failed.value.cause.offset, store.max_offset()) == (damaged, end)
        await store.stop()

    asyncio.run(scenario())
