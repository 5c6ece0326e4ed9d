"""Consume queue entries that point to records of other queues: no reader gets another queue's message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from messagestore import record
from messagestore.dispatch import endcheck
from messagestore.errors import QueueDamaged
from messagestore.log.commitlog import CommitLog
from messagestore.messages import GetResult, GetStatus
from messagestore.queues.consumequeue import ENTRY
from messagestore.store.messagestore import MessageStore
from tests.unit.messagestore.storehelp import dispatch_all, master, message, open_store, small_settings

QUEUES = (("one", 0), ("one", 1), ("two", 0))
EACH = 12
QUEUE_ID_AT = 12


def queue_file(root: Path, topic: str, queue_id: int) -> Path:
    return root / f"consumequeue/{topic}/{queue_id}/{0:020}"


async def filled(root: Path, each: int = EACH) -> None:
    """Fill queues in turn with records of equal size."""
    store = await master(root)
    for number in range(each):
        store.append([message(b"%d" % (number % 10), topic, queue_id) for topic, queue_id in QUEUES])
    dispatch_all(store)
    await store.stop()


async def read(store: MessageStore, topic: str, queue_id: int, at: int = 0) -> GetResult:
    result = store.get(topic, queue_id, at, EACH, 1 << 20, None)
    await store.load(result)
    return result


def places(result: GetResult) -> list[tuple[str, int, int]]:
    content, at, found = b"".join(bytes(each) for each in result.buffers), 0, []
    while at < len(content):
        each = record.decode(content, at)
        found.append((each.topic, each.queue_id, each.queue_offset))
        at += each.total_size
    return found


@pytest.mark.parametrize(("a", "b"), [(QUEUES[0], QUEUES[1]), (QUEUES[0], QUEUES[2])])
def test_queues_with_exchanged_files_are_rebuilt(
    tmp_path: Path, a: tuple[str, int], b: tuple[str, int]
) -> None:
    async def scenario() -> None:
        await filled(tmp_path)
        first, second = queue_file(tmp_path, *a), queue_file(tmp_path, *b)
        held = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(held)
        store = open_store(tmp_path)
        await store.start()
        for topic, queue_id in QUEUES:
            assert places(await read(store, topic, queue_id)) == [(topic, queue_id, at) for at in range(EACH)]
        await store.stop()

    asyncio.run(scenario())


def exchange(root: Path, *queues: tuple[str, int]) -> None:
    """Give each of the queues the file of the next one."""
    held = [queue_file(root, *each).read_bytes() for each in queues]
    for each, content in zip(queues, [*held[1:], held[0]], strict=True):
        queue_file(root, *each).write_bytes(content)


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("exchanged", [QUEUES[:2], QUEUES[::2], QUEUES], ids=["topic", "topics", "three"])
def test_queues_of_one_message_with_exchanged_files_are_rebuilt(
    tmp_path: Path, exchanged: Sequence[tuple[str, int]], is_cold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        await filled(tmp_path, each=1)
        exchange(tmp_path, *exchanged)
        if is_cold:
            monkeypatch.setattr(CommitLog, "in_memory", lambda self, ranges: False)
        store = open_store(tmp_path)
        await store.start()
        for topic, queue_id in QUEUES:
            assert places(await read(store, topic, queue_id)) == [(topic, queue_id, 0)]
        await store.stop()

    asyncio.run(scenario())


def test_a_queue_of_one_message_with_a_copy_of_another_file_is_rebuilt(tmp_path: Path) -> None:
    async def scenario() -> None:
        await filled(tmp_path, each=1)
        queue_file(tmp_path, *QUEUES[0]).write_bytes(queue_file(tmp_path, *QUEUES[1]).read_bytes())
        store = open_store(tmp_path)
        await store.start()
        for topic, queue_id in QUEUES:
            assert places(await read(store, topic, queue_id)) == [(topic, queue_id, 0)]
        await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("exchanged", [QUEUES[:2], QUEUES[::2]], ids=["topic", "topics"])
def test_exchanged_files_of_one_message_that_no_start_looked_at_fail_their_readers(
    tmp_path: Path, exchanged: Sequence[tuple[str, int]], is_cold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start looks at a limited number of queues."""
    monkeypatch.setattr(endcheck, "SCANNED_QUEUES_MAX", 0)

    async def scenario() -> None:
        await filled(tmp_path, each=1)
        exchange(tmp_path, *exchanged)
        if is_cold:
            monkeypatch.setattr(CommitLog, "in_memory", lambda self, ranges: False)
        store = open_store(tmp_path)
        await store.start()
        for topic, queue_id in exchanged:
            for _ in range(2):
                with pytest.raises(QueueDamaged, match=f"consumequeue/{topic}/{queue_id}"):
                    await read(store, topic, queue_id)
        await store.stop()

    asyncio.run(scenario())


def test_a_start_reads_few_records_of_single_entries_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them may cost a seek."""
    monkeypatch.setattr(CommitLog, "in_memory", lambda self, ranges: False)
    monkeypatch.setattr(endcheck, "COLD_RECORDS_MAX", 1)

    async def scenario() -> None:
        await filled(tmp_path, each=1)
        exchange(tmp_path, *QUEUES[1:])
        store = open_store(tmp_path)
        await store.start()
        assert places(await read(store, *QUEUES[0])) == [(*QUEUES[0], 0)]
        with pytest.raises(QueueDamaged):
            await read(store, *QUEUES[1])
        await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("another", [QUEUES[1], QUEUES[2]])
def test_an_entry_that_points_to_another_queues_record_fails_its_reader(
    tmp_path: Path, another: tuple[str, int], is_cold: bool
) -> None:
    async def scenario() -> None:
        await filled(tmp_path)
        own, other, at = queue_file(tmp_path, *QUEUES[0]), queue_file(tmp_path, *another), 5 * ENTRY.size
        content = bytearray(own.read_bytes())
        content[at : at + ENTRY.size] = other.read_bytes()[at : at + ENTRY.size]
        own.write_bytes(content)
        settings = small_settings(hot_segments=1) if is_cold else None
        store = open_store(tmp_path, settings)
        await store.start()
        for _ in range(2):
            with pytest.raises(QueueDamaged, match="consumequeue/one/0"):
                await read(store, *QUEUES[0])
            assert len(places(await read(store, *QUEUES[0], at=6))) == EACH - 6
            result = store.get("one", 0, 0, 5, 1 << 20, None)
            await store.load(result)
            assert result.status is GetStatus.FOUND and len(places(result)) == 5
        for topic, queue_id in QUEUES[1:]:
            assert len(places(await read(store, topic, queue_id))) == EACH
        await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("named", [1, 8])
@pytest.mark.parametrize(("each", "number"), [(EACH, 4), (EACH, EACH - 1), (1, 0)])
def test_a_record_with_a_corrupted_queue_id_is_served(
    tmp_path: Path, each: int, number: int, named: int
) -> None:
    """Its body is intact, and the queue id has no checksum. The queue that it names exists or does not."""

    async def scenario() -> None:
        await filled(tmp_path, each)
        own = queue_file(tmp_path, *QUEUES[0]).read_bytes()
        phy = ENTRY.unpack_from(own, number * ENTRY.size)[0]
        log = min((tmp_path / "commitlog").iterdir())
        content = bytearray(log.read_bytes())
        content[phy + QUEUE_ID_AT + 3] ^= named
        log.write_bytes(content)
        store = open_store(tmp_path)
        await store.start()
        for _ in range(2):
            assert len(places(await read(store, *QUEUES[0]))) == each
        await store.stop()

    asyncio.run(scenario())
