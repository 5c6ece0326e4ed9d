"""Index files: bytes as Java writes them, chains, truncation, torn files, and lookups by key."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from messagestore.checkpoint import INDEX_PARTIAL, Checkpoint, decode_checkpoint
from messagestore.index.file import (
    ENTRY,
    HEADER,
    PAUSE,
    IndexFile,
    file_size_for,
    key_hash,
    topic_prefix_hash,
)
from messagestore.index.table import IndexTable
from messagestore.properties import dispatched_values
from messagestore.record import QueueFacts, decode
from mqruntime.javahash import java_string_hash
from mqruntime.realruntime import real_runtime
from mqruntime.segments import RealSegmentDirectory
from tests.unit.messagestore.storehelp import (
    GOLDEN,
    dispatch_all,
    golden_index,
    master,
    message,
    open_store,
    small_settings,
)

pytestmark = pytest.mark.usefixtures("way")

SLOTS, ENTRIES = 4, 8


def table(root: Path, slots: int = SLOTS, entries: int = ENTRIES) -> IndexTable:
    clock = iter(range(1_700_000_000_000, 1_800_000_000_000))
    return IndexTable(real_runtime(root).segments.subdirectory("index"), slots, entries, lambda: next(clock))


def facts(
    *keys: str, unique: str = "", topic: str = "T", at_ms: int = 5_000, sys_flag: int = 0
) -> QueueFacts:
    text = f"KEYS\x01{' '.join(keys)}\x02" if keys else ""
    text += f"UNIQ_KEY\x01{unique}\x02" if unique else ""
    return QueueFacts(100, topic.encode(), 0, 0, sys_flag, at_ms, text.encode())


def put(index: IndexTable, phy: int, record: QueueFacts) -> None:
    index.put(phy, record, *dispatched_values(record.properties))


def found(index: IndexTable, key: str, topic: str = "T") -> list[int]:
    return list(index.find(topic, key, 0, 1 << 62))


def content(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "index").iterdir())}


def test_a_key_hashes_as_in_java() -> None:
    assert key_hash(topic_prefix_hash(b"TopicTest"), b"k1") == 2746024
    for key in (
        "",
        "k",
        "a" * 254,
        "a" * 255,
        "a" * 300,
        "schl\u00fcssel",
        "\U0001f511",
        "0123456789ABCDEF" * 2,
    ):
        value = java_string_hash(f"TopicTest#{key}")
        assert key_hash(topic_prefix_hash(b"TopicTest"), key.encode()) == (
            abs(value) if value > -(2**31) else 0
        )
    assert key_hash(-(2**31), b"") == 0, "the least int has no absolute value"


@pytest.mark.parametrize("name", ["clean-shutdown", "after-kill-9", "non-controller-record-crc"])
def test_the_bytes_of_a_java_index_match_its_listing(name: str) -> None:
    listed = json.loads((GOLDEN / name / "index.json").read_text())
    for path, raw in golden_index(name).items():
        row = listed[path]
        names = ("begin", "end", "beginPhy", "endPhy", "usedSlots", "indexCount")
        assert HEADER.unpack_from(raw) == tuple(row[name] for name in names)
        at = 40 + 4 * row["hashSlotNum"] + ENTRY.size
        entries = [list(ENTRY.unpack_from(raw, at + 20 * number)) for number in range(len(row["entries"]))]
        assert entries == row["entries"]
        assert len(raw) == file_size_for(row["hashSlotNum"], row["indexNum"])


def test_a_record_is_found_by_its_unique_key_and_by_each_of_its_keys(tmp_path: Path) -> None:
    index = table(tmp_path)
    put(index, 0, facts("a", "b", unique="U"))
    put(index, 100, facts("b"))
    put(index, 200, facts())
    put(index, 300, facts("b", sys_flag=0xC))  # a rollback
    assert [found(index, key) for key in ("a", "b", "U", "c")] == [[0], [100, 0], [0], []]
    assert found(index, "a", "other") == []
    assert index.last() == (5_000, 100)


def test_a_record_is_indexed_once(tmp_path: Path) -> None:
    index = table(tmp_path)
    for phy in (0, 100, 0, 100):
        put(index, phy, facts("a"))
    assert found(index, "a") == [100, 0]


def test_a_search_by_time_has_a_resolution_of_one_second(tmp_path: Path) -> None:
    index = table(tmp_path)
    for number in range(5):
        put(index, number * 100, facts("a", at_ms=10_000 + number * 1_000))
    assert list(index.find("T", "a", 12_000, 13_000)) == [300, 200]
    assert list(index.find("T", "a", 13_900, 20_000)) == [400, 300], "entries hold whole seconds"
    assert list(index.find("T", "a", 20_000, 30_000)) == []


def test_a_full_index_file_is_followed_by_the_next_and_both_are_searched(tmp_path: Path) -> None:
    index = table(tmp_path)
    for number in range(20):
        put(index, number * 100, facts("a"))
    assert found(index, "a") == [number * 100 for number in reversed(range(20))]
    names = list(content(tmp_path))
    assert len(names) == 3
    assert all(len(name) == 17 and name.startswith("2023111422") for name in names), "UTC"


def test_the_next_index_file_is_named_after_the_last_when_the_clock_went_back(tmp_path: Path) -> None:
    moments = iter((1_700_000_000_000, 1_670_000_000_000, 1_670_000_000_001))
    directory = real_runtime(tmp_path).segments.subdirectory("index")
    index = IndexTable(directory, SLOTS, ENTRIES, lambda: next(moments))
    for number in range(20):
        put(index, number * 100, facts("a"))
    assert found(index, "a") == [number * 100 for number in reversed(range(20))]
    first, *later = content(tmp_path)
    assert first.startswith("20231114") and later == [str(int(first) + 1), str(int(first) + 2)]


@pytest.mark.parametrize("cut", [0, 100, 550, 700, 900, 1_300, 2_000])
def test_a_truncated_index_equals_one_built_without_the_rest(tmp_path: Path, cut: int) -> None:
    async def scenario() -> None:
        whole, part = table(tmp_path / "whole"), table(tmp_path / "part")
        for number in range(20):
            record = facts(f"k{number % 3}", unique=f"U{number}", at_ms=number * 1_000)
            put(whole, number * 100, record)
            if number * 100 < cut:
                put(part, number * 100, record)
        await whole.truncate(cut)
        assert whole.phy_end == part.phy_end
        for key in ("k0", "k1", "k2", "U3", "U19"):
            assert found(whole, key) == found(part, key)
        put(whole, cut + 1, facts("new"))
        assert found(whole, "new") == [cut + 1]

    asyncio.run(scenario())


@pytest.mark.parametrize("tear", ["slots", "entries", "both"])
def test_a_torn_index_is_repaired_below_the_checkpoint(tmp_path: Path, tear: str) -> None:
    async def scenario() -> None:
        index = table(tmp_path, 8, 64)
        for number in range(12):
            put(index, number * 100, facts(f"k{number % 3}"))
        await index.sync()
        index.close()
        ((name, raw),) = content(tmp_path).items()
        torn = bytearray(raw)
        if tear != "entries":
            torn[HEADER.size : HEADER.size + 4 * 8] = bytes(range(32))
        if tear != "slots":
            torn[HEADER.size + 4 * 8 + ENTRY.size * 9 :] = bytes(len(raw) - HEADER.size - 32 - ENTRY.size * 9)
        (tmp_path / "index" / name).write_bytes(torn)
        repaired = table(tmp_path, 8, 64)
        await repaired.load(800, trusted=False)
        last = [700] if tear == "slots" else []  # the record may have had more keys
        assert repaired.phy_end == (701 if last else 601)
        assert [found(repaired, key) for key in ("k0", "k1", "k2")] == [
            [600, 300, 0],
            [*last, 400, 100],
            [500, 200],
        ]
        for number in range(7, 12):
            put(repaired, number * 100, facts(f"k{number % 3}"))
        await repaired.sync()
        assert content(tmp_path) == {name: raw}, "refilled, it has the same bytes"

    asyncio.run(scenario())


def test_index_files_of_another_geometry_are_rebuilt_from_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path)
        await store.stop()
        before = content(tmp_path)
        store = open_store(tmp_path, small_settings(max_index_num=100, max_hash_slot_num=10))
        report = await store.start()
        assert report.walked_from == 0
        assert await bodies(store, "k1") == [b"two", b"one"]
        await store.stop()
        assert before.keys() != content(tmp_path).keys()

    asyncio.run(scenario())


async def filled(root: Path) -> Any:
    """A running store with three messages, all confirmed and dispatched."""
    store = await master(root)
    store.append(
        [
            message(b"one", properties=b"KEYS\x01k1 k2\x02UNIQ_KEY\x01U1\x02"),
            message(b"two", properties=b"KEYS\x01k1\x02"),
            message(b"other topic", "Other", properties=b"KEYS\x01k1\x02"),
        ]
    )
    dispatch_all(store)
    return store


async def bodies(store: Any, key: str, count_max: int = 10, topic: str = "TopicTest") -> list[bytes]:
    records = await store.find_by_key(topic, key, count_max, 0, 1 << 62)
    return [decode(content).body for content in records]


def test_a_query_response_has_a_size_limit_but_at_least_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path)
        whole = await bodies(store, "k1")
        assert len(whole) == 2
        monkeypatch.setattr("messagestore.index.lookup.ANSWER_BYTES_MAX", 1)
        assert len(await bodies(store, "k1")) == 1
        await store.stop()

    asyncio.run(scenario())


def test_a_store_finds_confirmed_messages_by_key_before_and_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path)
        for _ in range(2):
            assert await bodies(store, "k1") == [b"two", b"one"]
            assert await bodies(store, "k1", 1) == [b"two"]
            assert await bodies(store, "k2") == await bodies(store, "U1") == [b"one"]
            assert await bodies(store, "k1", topic="Other") == [b"other topic"]
            assert await bodies(store, "k") == []
            assert store.last_indexed()[1] > 0
            await store.stop()
            store = open_store(tmp_path)
            report = await store.start()
        assert report.dispatched_offset == report.max_offset
        await store.stop()

    asyncio.run(scenario())


def test_a_truncated_message_is_not_found_and_its_offset_is_indexed_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await filled(tmp_path)
        (second,) = await store.find_by_key("TopicTest", "k1", 1, 0, 1 << 62)
        await store.truncate(decode(second).physical_offset)
        assert await bodies(store, "k1") == [b"one"]
        await store.become_master()
        store.append([message(b"instead", properties=b"KEYS\x01k1\x02")])
        store.set_confirm_offset(store.max_offset())
        store.dispatch()
        assert await bodies(store, "k1") == [b"instead", b"one"]
        await store.stop()

    asyncio.run(scenario())


def test_without_an_index_nothing_is_found_and_no_file_is_created(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(tmp_path, small_settings(message_index_enable=False))
        await store.start()
        assert await bodies(store, "k1") == []
        assert store.last_indexed() == (0, 0)
        await store.stop()
        assert not (tmp_path / "index").exists()

    asyncio.run(scenario())


def test_a_search_of_a_long_chain_yields_to_other_tasks(tmp_path: Path) -> None:
    index = table(tmp_path, 16, 20_000)
    for number in range(10_000):
        put(index, number * 100, facts("a"))
    steps = list(index.find("T", "a", 0, 1 << 62))
    assert steps.count(PAUSE) == 2
    assert len(steps) == 10_002


def test_a_chain_is_walked_back_in_steps(tmp_path: Path) -> None:
    index = table(tmp_path, 16, 2_000)
    for number in range(1_000):
        put(index, number * 100, facts("a"))
    (file,) = index.files
    assert file.back_from(1_000, 200, 300) == (700, 0)
    assert file.back_from(700, 200, 5_000) == (199, 5_000 - 501)
    assert file.back_from(199, 200, 7) == (199, 7)
    assert file.back_from(1_001, 200, 7) == (0, 6), "no such entry exists"


def test_an_index_file_of_java_is_searched_by_its_chains(tmp_path: Path) -> None:
    (raw,) = golden_index("clean-shutdown").values()
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20261121102158488").write_bytes(raw)
    directory = real_runtime(tmp_path).segments.subdirectory("index")
    opened = directory.open("20261121102158488")
    file = IndexFile(opened, 2000, 8000, bytes(opened.view()[: HEADER.size]))
    (row,) = json.loads((GOLDEN / "clean-shutdown" / "index.json").read_text()).values()
    by_hash: dict[int, list[int]] = {}
    for value, phy, _, _ in row["entries"]:
        by_hash.setdefault(value, []).insert(0, phy)
    for value, positions in by_hash.items():
        assert list(file.find(value, 0, 1 << 62)) == positions


def test_an_unfinished_index_build_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store = await master(tmp_path)
        store.append([message(properties=b"KEYS\x01k%d\x02" % number) for number in range(100)])
        dispatch_all(store)
        await store.stop()
        saved = Checkpoint(1 << 50, 1 << 50, 1 << 50, 0, store.confirm_offset())
        (tmp_path / "checkpoint").write_bytes(
            saved.encode()
        )  # stored long ago: queues are missing the last segment at most
        settings = small_settings(
            max_index_num=40, max_hash_slot_num=7
        )  # a geometry that needs three new files
        sync, synced = IndexFile.sync, 0

        async def breaks_off(self: IndexFile) -> None:
            nonlocal synced
            synced += 1
            if synced > 1:
                self.file.view()[:] = bytes(self.file.size_bytes)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            await sync(self)

        with monkeypatch.context() as disk:
            disk.setattr(IndexFile, "sync", breaks_off)
            with pytest.raises(OSError, match="Input/output"):
                await open_store(tmp_path, settings).start()
        again = open_store(tmp_path, settings)
        await again.start()
        assert [len(await again.find_by_key("TopicTest", f"k{n}", 9, 0, 1 << 62)) for n in range(100)] == [
            1
        ] * 100
        await again.stop()

    asyncio.run(scenario())


def test_an_unfinished_index_build_is_discarded_after_a_power_cut(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await master(tmp_path)
        store.append([message(properties=b"KEYS\x01k%d\x02" % number) for number in range(100)])
        dispatch_all(store)
        await store.stop()
        checkpoint = decode_checkpoint((tmp_path / "checkpoint").read_bytes())
        checkpoint.index_msg_timestamp = INDEX_PARTIAL
        checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = (
            checkpoint.logics_msg_timestamp + 10_000
        )
        (tmp_path / "checkpoint").write_bytes(checkpoint.encode())
        (tmp_path / "abort").touch()
        for file in (tmp_path / "index").iterdir():
            head = file.read_bytes()[: HEADER.size]  # only the first page reached the disk
            file.write_bytes(head.ljust(file.stat().st_size, b"\0"))
        again = open_store(tmp_path)
        await again.start()
        found = [await again.find_by_key("TopicTest", f"k{n}", 9, 0, 1 << 62) for n in range(100)]
        assert [len(records) for records in found] == [1] * 100
        await again.stop()

    asyncio.run(scenario())


def test_an_index_of_another_geometry_is_invalid_before_its_first_file_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store = await master(tmp_path)
        store.append([message(properties=b"KEYS\x01k%d\x02" % number) for number in range(100)])
        dispatch_all(store)
        await store.stop()
        checkpoint = decode_checkpoint((tmp_path / "checkpoint").read_bytes())
        checkpoint.index_msg_timestamp += 10_000
        checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = checkpoint.index_msg_timestamp
        (tmp_path / "checkpoint").write_bytes(checkpoint.encode())
        first, *others = sorted(file.name for file in (tmp_path / "index").iterdir())
        assert others
        delete = RealSegmentDirectory.delete

        async def deletes_one(self: RealSegmentDirectory, name: str) -> None:
            if name in others:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            await delete(self, name)

        with monkeypatch.context() as disk:
            disk.setattr(RealSegmentDirectory, "delete", deletes_one)
            with pytest.raises(OSError, match="Input/output"):
                await open_store(tmp_path, small_settings(max_index_num=400, max_hash_slot_num=7)).start()
        assert not (tmp_path / "index" / first).exists()
        again = open_store(tmp_path)
        await again.start()
        found = [await again.find_by_key("TopicTest", f"k{n}", 9, 0, 1 << 62) for n in range(100)]
        assert [len(records) for records in found] == [1] * 100
        await again.stop()

    asyncio.run(scenario())
