"""Consume queues whose files were damaged while no store ran: the next start lists what the log holds."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from messagestore.errors import BadSegments, QueueUnmendable
from messagestore.queues.ends import FILE, OffsetSpan, decode_queue_ends
from tests.unit.messagestore.storehelp import (
    dispatch_all,
    master,
    message,
    open_store,
    queue_entries,
    small_settings,
)

FILE_BYTES = 400
PER_FILE = 20
TOPICS = [("TopicA", 0), ("TopicA", 1), ("TopicB", 0)]
COUNTS = {("TopicA", 0): 76, ("TopicA", 1): 70, ("TopicB", 0): 25}
"""TopicB stopped early: none of its records is in the part of the log that a start reads."""
Damage = Callable[[Path], object]


def queue_folder(root: Path, topic: str = "TopicA", queue_id: int = 0) -> Path:
    return root / "consumequeue" / topic / str(queue_id)


def files_of(root: Path, topic: str, queue_id: int) -> list[Path]:
    return sorted(queue_folder(root, topic, queue_id).iterdir())


def body(number: int) -> bytes:
    return b"%d" % number * 40


async def filled(root: Path, *, clean: bool = True) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    store = await master(root)
    for number in range(max(COUNTS.values())):
        due = [key for key in TOPICS if number < COUNTS[key]]
        store.append([message(body(number), topic, queue_id) for topic, queue_id in due])
    dispatch_all(store)
    listed = queue_entries(store)
    assert {key: len(entries) for key, entries in listed.items()} == COUNTS
    await store.stop()
    if not clean:
        (root / "abort.spare").rename(root / "abort")
    return listed


def emptied(topic: str, queue_id: int, number: int) -> Damage:
    return lambda root: files_of(root, topic, queue_id)[number].write_bytes(b"")


def deleted(topic: str, queue_id: int, number: int) -> Damage:
    return lambda root: files_of(root, topic, queue_id)[number].unlink()


def cut_short(topic: str, queue_id: int, number: int, size: int) -> Damage:
    return lambda root: shortened(files_of(root, topic, queue_id)[number], size)


def shortened(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


def overwritten(
    topic: str, queue_id: int, number: int, start: int, stop: int, content: bytes | None
) -> Damage:
    def strike(root: Path) -> None:
        file = files_of(root, topic, queue_id)[number]
        page = bytearray(file.read_bytes())
        noise = random.Random(31).randbytes(stop - start)
        page[start:stop] = noise if content is None else content * (stop - start)
        file.write_bytes(page)

    return strike


def gone(name: str) -> Damage:
    return lambda root: shutil.rmtree(root / "consumequeue" / name)


def everything_emptied(root: Path) -> None:
    for topic, queue_id in TOPICS:
        for file in files_of(root, topic, queue_id):
            file.write_bytes(b"")


DAMAGES: dict[str, Damage] = {
    "only file of 0 bytes": lambda root: [
        file.write_bytes(b"") for file in files_of(root, "TopicB", 0)
    ],
    "last file of 0 bytes": emptied("TopicA", 0, -1),
    "first file of 0 bytes": emptied("TopicA", 0, 0),
    "last file deleted": deleted("TopicA", 0, -1),
    "last file of a quiet topic deleted": deleted("TopicB", 0, -1),
    "first file deleted": deleted("TopicA", 0, 0),
    "first file of a quiet topic deleted": deleted("TopicB", 0, 0),
    "file in the middle deleted": deleted("TopicA", 0, 1),
    "file cut short": cut_short("TopicA", 0, 1, 133),
    "last file cut short": cut_short("TopicA", 0, -1, 20),
    "tail of zeros": overwritten("TopicA", 0, -1, 100, FILE_BYTES, b"\0"),
    "file of zeros": overwritten("TopicA", 0, -1, 0, FILE_BYTES, b"\0"),
    "zeros in the middle": overwritten("TopicA", 0, 1, 60, 140, b"\0"),
    "quiet topic's tail of zeros": overwritten("TopicB", 0, -1, 40, FILE_BYTES, b"\0"),
    "random bytes in the middle": overwritten("TopicA", 0, 1, 60, 140, None),
    "random bytes from an entry's tags on": overwritten("TopicA", 0, 1, 72, 92, None),
    "random bytes at the end": overwritten("TopicA", 0, -1, 200, FILE_BYTES, None),
    "random bytes in a file": overwritten("TopicA", 0, 2, 0, FILE_BYTES, None),
    "queue folder gone": gone("TopicA/0"),
    "quiet topic's folder gone": gone("TopicB"),
    "topic folder gone": gone("TopicA"),
    "every folder gone": gone(""),
    "every file of 0 bytes": everything_emptied,
}  # fmt: skip


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_queues_are_rebuilt_from_the_log_and_continue(
    tmp_path: Path, damage: Damage, *, clean: bool
) -> None:
    async def scenario() -> None:
        listed = await filled(tmp_path, clean=clean)
        damage(tmp_path)
        for _ in range(2):
            store = open_store(tmp_path)
            report = await store.start()
            assert report.clean is clean or _ == 1
            assert queue_entries(store) == listed
            await store.become_master()
            assert [
                outcome.queue_offset
                for outcome in store.append(
                    [message(topic=topic, queue_id=queue_id) for topic, queue_id in TOPICS]
                )
            ] == [len(listed[key]) for key in TOPICS]
            dispatch_all(store)
            listed = queue_entries(store)
            assert [len(listed[key]) for key in TOPICS] == [COUNTS[key] + _ + 1 for key in TOPICS]
            await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "damage", ["last file of a quiet topic deleted", "tail of zeros", "topic folder gone"]
)
@pytest.mark.parametrize("ends", ["absent", "damaged", "old"])
def test_without_stored_ends_the_whole_log_is_scanned(tmp_path: Path, damage: str, ends: str) -> None:
    async def scenario() -> None:
        listed = await filled(tmp_path)
        remembered = (tmp_path / FILE).read_bytes()
        if ends == "old":
            store = await master(tmp_path)
            store.append([message(topic="TopicB")] * 30)
            dispatch_all(store)
            listed = queue_entries(store)
            await store.stop()
            (tmp_path / FILE).write_bytes(remembered)
        elif ends == "absent":
            (tmp_path / FILE).unlink()
        else:
            (tmp_path / FILE).write_bytes(remembered[:30] + b"\1" + remembered[31:])
        DAMAGES[damage](tmp_path)
        store = open_store(tmp_path)
        await store.start()
        assert queue_entries(store) == listed
        await store.stop()

    asyncio.run(scenario())


def test_a_rebuild_is_logged_and_changes_no_other_queue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        await filled(tmp_path)
        others = {file: file.stat().st_ino for file in files_of(tmp_path, "TopicA", 1)}
        deleted("TopicB", 0, -1)(tmp_path)
        store = open_store(tmp_path)
        with caplog.at_level(logging.INFO):
            await store.start()
        assert {file: file.stat().st_ino for file in files_of(tmp_path, "TopicA", 1)} == others
        (began,) = [each for each in caplog.records if "list less than the log holds" in each.message]
        assert began.levelno == logging.WARNING
        assert "TopicB/0" in str(began.__dict__)
        await store.stop()

    asyncio.run(scenario())


def test_entries_of_long_records_before_the_damage_are_kept(tmp_path: Path) -> None:
    """The topic follows the body, so a look at a record's first bytes does not show whose it is."""

    async def scenario() -> None:
        store = await master(tmp_path)
        for _ in range(2 * PER_FILE):
            store.append([message(bytes(1000), "TopicA")])
        dispatch_all(store)
        listed = queue_entries(store)
        await store.stop()
        first = files_of(tmp_path, "TopicA", 0)[0]
        kept = tmp_path / "kept"
        kept.hardlink_to(first)  # a new file cannot get its inode
        deleted("TopicA", 0, -1)(tmp_path)
        store = open_store(tmp_path)
        await store.start()
        assert queue_entries(store) == listed
        assert first.samefile(kept)
        await store.stop()

    asyncio.run(scenario())


def test_intact_queues_are_not_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        await filled(tmp_path)
        store = open_store(tmp_path)
        with caplog.at_level(logging.WARNING):
            await store.start()
        assert caplog.records == []
        await store.stop()

    asyncio.run(scenario())


def test_a_file_size_that_no_queue_has_is_a_wrong_setting(tmp_path: Path) -> None:
    async def scenario() -> None:
        await filled(tmp_path)
        before = {
            file: file.read_bytes() for file in (tmp_path / "consumequeue").rglob("0*") if file.is_file()
        }
        store = open_store(tmp_path, small_settings(mapped_file_size_consume_queue=800))
        with pytest.raises(BadSegments, match="mappedFileSizeConsumeQueue=400"):
            await store.start()
        assert {file: file.read_bytes() for file in before} == before

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [FILE_BYTES // 2, FILE_BYTES // 2 + 7])
def test_one_queue_file_of_another_size_is_rebuilt(tmp_path: Path, size: int) -> None:
    """Also if it is the only file of all queues."""

    async def scenario() -> None:
        store = await master(tmp_path)
        for number in range(PER_FILE - 2):
            store.append([message(body(number), "TopicA", 0)])
        dispatch_all(store)
        listed = queue_entries(store)
        await store.stop()
        cut_short("TopicA", 0, 0, size)(tmp_path)
        store = open_store(tmp_path)
        await store.start()
        assert queue_entries(store) == listed
        await store.stop()

    asyncio.run(scenario())


def test_queue_files_of_impossible_sizes_are_rebuilt(tmp_path: Path) -> None:
    async def scenario() -> None:
        listed = await filled(tmp_path)
        for topic, queue_id in TOPICS:
            for number, file in enumerate(files_of(tmp_path, topic, queue_id)):
                shortened(file, FILE_BYTES - 20 * number - 1)
        store = open_store(tmp_path)
        await store.start()
        assert queue_entries(store) == listed
        await store.stop()

    asyncio.run(scenario())


def test_a_foreign_file_in_a_queue_folder_is_not_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        await filled(tmp_path)
        (queue_folder(tmp_path) / "00-note.txt").write_bytes(b"x" * FILE_BYTES)
        store = open_store(tmp_path)
        with pytest.raises(BadSegments, match="move this file elsewhere"):
            await store.start()
        assert (queue_folder(tmp_path) / "00-note.txt").exists()

    asyncio.run(scenario())


def test_a_queue_with_a_damaged_log_is_rejected_by_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        await filled(tmp_path)
        first = tmp_path / "commitlog" / ("0" * 20)
        page = bytearray(first.read_bytes())
        page[0:40] = bytes(range(40))
        first.write_bytes(page)
        gone("TopicB")(tmp_path)
        store = open_store(tmp_path)
        with pytest.raises(QueueUnmendable, match="consumequeue/TopicB/0"):
            await store.start()

    asyncio.run(scenario())


def test_stored_ends_equal_the_dispatched_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        await filled(tmp_path)
        ends = decode_queue_ends((tmp_path / FILE).read_bytes())
        assert ends is not None
        assert ends.spans == {
            (topic.encode(), queue_id): OffsetSpan(0, count) for (topic, queue_id), count in COUNTS.items()
        }
        for size in range(0, 90, 7):
            assert decode_queue_ends((tmp_path / FILE).read_bytes()[:size]) is None

    asyncio.run(scenario())


def test_a_truncation_invalidates_the_stored_ends_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        listed = await filled(tmp_path)
        store = open_store(tmp_path)
        await store.start()
        at = listed["TopicA", 0][40][0]
        await store.truncate(at)
        assert (
            not (tmp_path / FILE).exists() or decode_queue_ends((tmp_path / FILE).read_bytes()).position <= at
        )  # type: ignore[union-attr]
        await store.become_master()
        assert [outcome.queue_offset for outcome in store.append([message(topic="TopicA")])] == [40]
        dispatch_all(store)
        kept = queue_entries(store)
        await store.stop()
        again = open_store(tmp_path)
        await again.start()
        assert queue_entries(again) == kept
        assert len(kept["TopicA", 0]) == 41
        await again.stop()

    asyncio.run(scenario())


def test_a_queue_without_messages_assigns_no_offset_twice(tmp_path: Path) -> None:
    async def scenario() -> None:
        await filled(tmp_path)
        store = open_store(tmp_path)
        await store.start()
        begin = store._log.segment_start(store.max_offset())
        trimmed = await store.begin_at(begin, lambda: True)
        assert trimmed.segments > 0
        await store.stop()
        gone("TopicB")(tmp_path)
        for _ in range(2):
            store = open_store(tmp_path)
            await store.start()
            assert store.max_queue_offset("TopicB", 0) == COUNTS["TopicB", 0]
            await store.stop()
        store = await master(tmp_path)
        assert store.append([message(topic="TopicB")])[0].queue_offset == COUNTS["TopicB", 0]
        await store.stop()

    asyncio.run(scenario())
