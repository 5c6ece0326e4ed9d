"""Tags codes and sizes of queue entries that became corrupt: the scrub repairs them from the records, and nothing else."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from messagestore import record
from messagestore.dispatch import entrymending
from messagestore.errors import QueueDamaged
from messagestore.log.commitlog import CommitLog
from messagestore.messages import GetStatus, MessageToStore
from messagestore.queues.consumequeue import ENTRY
from messagestore.store.messagestore import MessageStore
from messagestore.systemtopics import SCHEDULE_TOPIC
from mqruntime.javahash import java_string_hash
from tests.unit.messagestore.storehelp import (
    dispatch_all,
    in_loop,
    master,
    message,
    open_store,
    queue_entries,
    small_settings,
)

COUNT = 60
TAGS_CODE_AT = 12
TAG = "TagA"


def tagged(number: int, topic: str = "TopicTest") -> MessageToStore:
    return message(b"%d" % number * 40, topic, properties=b"TAGS\1%b\2" % TAG.encode())


async def filled(root: Path, **settings: int) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    """Several segments and several files of a queue."""
    store = await master(root, **settings)
    for number in range(COUNT):
        store.append([tagged(number), message(b"none", "Plain")])
    dispatch_all(store)
    listed = queue_entries(store)
    await store.stop()
    return listed


def flip_tags_code(root: Path, number: int, topic: str = "TopicTest", byte: int = 7) -> None:
    """Flip a bit in the tags code of the queue's entry `number`; a file has 20 entries."""
    index, within = divmod(number, 20)
    file = sorted((root / "consumequeue" / topic / "0").iterdir())[index]
    content = bytearray(file.read_bytes())
    content[within * ENTRY.size + TAGS_CODE_AT + byte] ^= 4
    file.write_bytes(content)


async def scrubbed(store: MessageStore) -> None:
    while not store.scrubber.schedule.passes:  # noqa: ASYNC110 - the disk is real, so is the waiting
        await asyncio.sleep(0)


async def with_tag(store: MessageStore) -> int:
    """The number of messages that a reader by tag finds."""
    wanted, at, found = java_string_hash(TAG), 0, 0
    while (
        result := store.get("TopicTest", 0, at, 32, 1 << 20, wanted.__eq__)
    ).status is not GetStatus.OFFSET_OVERFLOW_ONE:
        await store.load(result)
        at, found = result.next_begin_offset, found + result.count
    return found


@pytest.mark.parametrize("byte", [0, 7], ids=["no tag has it", "another tag's"])
@pytest.mark.parametrize("number", [0, 25, COUNT - 1])
@in_loop
async def test_readers_by_tag_get_a_message_whose_tags_code_rotted(
    tmp_path: Path, number: int, byte: int, caplog: pytest.LogCaptureFixture
) -> None:
    listed = await filled(tmp_path)
    flip_tags_code(tmp_path, number, byte=byte)
    store = open_store(tmp_path)
    with caplog.at_level(logging.WARNING):
        await store.start()
        await scrubbed(store)
    assert await with_tag(store) == COUNT
    assert queue_entries(store) == listed and store.entry_mending.repairs == 1
    (line,) = caplog.records
    assert "TopicTest/0" in str(line.__dict__) and f"'queue_offset': {number}" in str(line.__dict__)
    await store.stop()
    again = open_store(tmp_path)
    await again.start()
    assert queue_entries(again) == listed, "the repair is in the file"
    await again.stop()


@in_loop
async def test_a_tags_code_of_a_message_without_tags_is_repaired(tmp_path: Path) -> None:
    listed = await filled(tmp_path)
    flip_tags_code(tmp_path, 3, "Plain")
    store = open_store(tmp_path)
    await store.start()
    await scrubbed(store)
    assert queue_entries(store) == listed
    await store.stop()


@pytest.mark.parametrize("each", [1, 7, COUNT])
@in_loop
async def test_slices_of_any_size_cover_the_whole_log(
    tmp_path: Path, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entrymending, "SLICE_RECORDS", each)
    monkeypatch.setattr(entrymending, "SLICE_BYTES", 100)
    listed = await filled(tmp_path)
    for number in range(COUNT):
        flip_tags_code(tmp_path, number)
    store = open_store(tmp_path)
    await store.start()
    await scrubbed(store)
    assert queue_entries(store) == listed
    assert store.entry_mending.repairs == COUNT
    await store.stop()


@in_loop
async def test_later_passes_compare_cold_entries_again(tmp_path: Path) -> None:
    """The file rots while the process runs."""
    await filled(tmp_path)
    store = open_store(tmp_path, small_settings(hot_segments=1))
    store.scrubber.schedule._interval_ms = 0
    await store.start()
    await scrubbed(store)
    listed = queue_entries(store)
    rotten = bytearray(ENTRY.pack(*listed["TopicTest", 0][1]))
    rotten[-1] ^= 4
    queue = store._queues.find("TopicTest", 0)
    assert queue is not None
    queue._open(0).view()[ENTRY.size : 2 * ENTRY.size] = rotten
    assert queue_entries(store) != listed
    passes = store.scrubber.schedule.passes
    while store.scrubber.schedule.passes < passes + 2:  # noqa: ASYNC110 - the disk is real, so is the waiting
        await asyncio.sleep(0)
    assert queue_entries(store) == listed
    await store.stop()


@in_loop
async def test_due_times_of_delayed_messages_stay(tmp_path: Path) -> None:
    """Their levels may have changed since, and their delivery compares them with the records."""
    store = await master(tmp_path)
    delayed = message(topic=SCHEDULE_TOPIC, queue_id=2, properties=b"DELAY\x013\2")
    store.append([delayed, tagged(1)])
    dispatch_all(store)
    before = queue_entries(store)
    await store.stop()
    store = open_store(tmp_path, small_settings(message_delay_level="1h 2h 3h"))
    await store.start()
    await scrubbed(store)
    assert queue_entries(store) == before and not store.entry_mending.repairs
    await store.stop()


@in_loop
async def test_no_entry_is_changed_after_a_record_whose_crc_disagrees(tmp_path: Path) -> None:
    """The record's tag rotted, and its entry has the right one."""
    listed = await filled(tmp_path, enabled_append_prop_crc=True)
    phy = listed["TopicTest", 0][3][0]
    segment = sorted((tmp_path / "commitlog").iterdir())[phy // 4096]
    content = bytearray(segment.read_bytes())
    at = content.index(TAG.encode(), phy % 4096)
    content[at + 3] ^= 1
    segment.write_bytes(content)
    store = open_store(tmp_path)
    await store.start()
    await scrubbed(store)
    assert queue_entries(store) == listed and not store.entry_mending.repairs
    await store.stop()


@in_loop
async def test_an_intact_store_logs_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listed = await filled(tmp_path)
    store = open_store(tmp_path)
    with caplog.at_level(logging.WARNING):
        await store.start()
        await scrubbed(store)
    assert queue_entries(store) == listed and not caplog.records and not store.entry_mending.repairs
    await store.stop()


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("flip", [0x01, 0x80], ids=["longer or shorter", "far longer"])
@in_loop
async def test_an_entry_with_another_size_fails_its_readers_until_it_is_repaired(
    tmp_path: Path, flip: int, is_cold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a client would get bytes that are no message."""
    listed = await filled(tmp_path)
    file = min((tmp_path / "consumequeue/TopicTest/0").iterdir())
    content = bytearray(file.read_bytes())
    content[3 * ENTRY.size + TAGS_CODE_AT - 1] ^= flip
    file.write_bytes(content)
    if is_cold:
        monkeypatch.setattr(CommitLog, "in_memory", lambda self, ranges: False)
    store = open_store(tmp_path)
    await store.start()

    async def read(at: int) -> bytes:
        result = store.get("TopicTest", 0, at, 1, 1 << 20, None)
        await store.load(result)
        return record.decode(b"".join(map(bytes, result.buffers))).body

    if not store.scrubber.schedule.passes:
        assert await read(4) == b"4" * 40
        with pytest.raises(QueueDamaged, match="consumequeue/TopicTest/0"):
            await read(3)
    await scrubbed(store)
    assert await read(3) == b"3" * 40
    assert queue_entries(store) == listed and store.entry_mending.repairs == 1
    await store.stop()
