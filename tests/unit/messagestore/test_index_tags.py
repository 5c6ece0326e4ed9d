"""Index entries of tags: written as in Java 5.5.1, searched, and the offset since which older files have
them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from messagestore.checkpoint import TAGS_SINCE_AT, Checkpoint, decode_checkpoint
from messagestore.index.file import ENTRY, HEADER, key_hash, topic_prefix_hash
from messagestore.index.table import ALL_TAGS, IndexTable, TagsSince
from messagestore.record import decode
from messagestore.store.messagestore import MessageStore
from tests.unit.messagestore.storehelp import (
    INDEX_GEOMETRY,
    dispatch_all,
    golden_index,
    golden_lines,
    lay_out,
    message,
    open_store,
    small_settings,
)  # fmt: skip

SETS = ["clean-shutdown", "after-kill-9", "non-controller-record-crc"]
MOMENTS = 200
"""Retries, 20 ms apart, until the files were examined."""


def entries_of(raw: bytes, slots: int) -> list[tuple[int, int]]:
    """(hash, physical offset) of each entry."""
    at, count = HEADER.size + 4 * slots, HEADER.unpack_from(raw)[5]
    return [ENTRY.unpack_from(raw, at + ENTRY.size * number)[:2] for number in range(1, count)]


@pytest.mark.parametrize("name", SETS)
def test_java_writes_the_entry_of_the_tag_after_those_of_the_keys(name: str) -> None:
    """The vector has the entries of 5.3.3 and, for each record with a tag, one more as its last."""
    slots = INDEX_GEOMETRY[name][0]
    (older,), (newer,) = golden_index(name).values(), golden_index(name, "index-5.5.1").values()
    tags = {
        line["physicalOffset"]: key_hash(
            topic_prefix_hash(line["topic"].encode()), b"T#" + line["properties"]["TAGS"].encode()
        )
        for line in golden_lines(name)
        if line["record"] != "BLANK" and line["properties"].get("TAGS") and line["sysFlag"] & 0xC != 0xC
    }
    due, left = list[tuple[int, int]](), entries_of(older, slots)
    for phy in sorted({*tags, *(phy for _, phy in left)}):
        due += [entry for entry in left if entry[1] == phy]
        due += [(tags[phy], phy)] if phy in tags else []
    assert tags and entries_of(newer, slots) == due


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", SETS)
def test_the_index_of_a_log_has_the_bytes_of_java(name: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = lay_out(name, tmp_path, queues=False)
        (tmp_path / "abort").touch()
        store = open_store(tmp_path, settings)
        await store.start()
        dispatch_all(store)
        await store.stop()
        (built,) = (tmp_path / "index").iterdir()
        assert [built.read_bytes()] == list(golden_index(name, "index-5.5.1").values())

    asyncio.run(scenario())


def append(store: MessageStore, *messages: tuple[str, bytes, bytes]) -> None:
    """Append messages of (topic, body, properties) and dispatch them."""
    store.append([message(body, topic, properties=properties) for topic, body, properties in messages])
    dispatch_all(store)


async def opened(root: Path, **settings: Any) -> MessageStore:
    store = open_store(root, small_settings(**settings))
    await store.start()
    await store.become_master()
    return store


async def bodies(store: MessageStore, tag: str, topic: str = "T", **how: Any) -> list[bytes]:
    records = await store.find_by_key(topic, tag, 64, 0, 1 << 62, **{"by_tag": True, **how})
    return [decode(content).body for content in records]


@pytest.mark.usefixtures("way")
def test_a_search_by_tag_finds_only_messages_of_the_topic_with_that_tag(tmp_path: Path) -> None:
    """`Aa` and `BB` have the same hash, and so have the tag `Aa` and the key `T#Aa`; a tag is the whole of
    TAGS."""

    async def scenario() -> None:
        store = await opened(tmp_path)
        append(
            store,
            ("T", b"0", b"TAGS\x01Aa\x02"),
            ("T", b"1", b"TAGS\x01BB\x02KEYS\x01Aa\x02"),
            ("U", b"2", b"TAGS\x01Aa\x02"),
            ("T", b"3", b"KEYS\x01T#Aa\x02"),
            ("T", b"4", b"TAGS\x01Aa || BB\x02"),
            ("T", b"5", b"UNIQ_KEY\x01Aa\x02KEYS\x01k\x02TAGS\x01BB\x02TAGS\x01Aa\x02"),
            ("T", b"6", "TAGS\x01schl\u00fcssel\x02".encode()),
        )
        assert await bodies(store, "Aa") == [b"5", b"0"]
        assert await bodies(store, "BB") == [b"1"]
        assert await bodies(store, "Aa", "U") == [b"2"]
        assert await bodies(store, "Aa || BB") == [b"4"]
        assert await bodies(store, "schl\u00fcssel") == [b"6"]
        assert await bodies(store, "none") == await bodies(store, "k") == []
        assert await bodies(store, "T#Aa", by_tag=False) == [b"3"]
        assert await bodies(store, "Aa", by_tag=False) == [b"5", b"1"]
        assert store.tags_missing_until("T") is None
        await store.stop()

    asyncio.run(scenario())


@pytest.mark.usefixtures("way")
def test_every_message_of_a_log_indexed_in_pieces_is_found_by_its_tag(tmp_path: Path) -> None:
    """Hundreds in one step, so that entries are written in bulk, compiled, and one by one."""

    async def scenario() -> None:
        store = await opened(tmp_path, mapped_file_size_commit_log=1 << 20)
        number = 0
        for count in (1, 300, 2, 500):
            append(
                store,
                *(
                    ("T", b"%d" % each, b"UNIQ_KEY\x01U%d\x02TAGS\x01Tag%d\x02" % (each, each))
                    for each in range(number, number + count)
                ),
            )
            number += count
        for _ in range(2):
            for each in range(number):
                assert await bodies(store, f"Tag{each}") == [b"%d" % each]
            await store.stop()
            for path in (tmp_path / "index").iterdir():
                path.unlink()  # the next start indexes everything again
            store = await opened(tmp_path, mapped_file_size_commit_log=1 << 20)
        await store.stop()

    asyncio.run(scenario())


def without_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write entries and checkpoints as older versions did."""
    of_all, encode = IndexTable.hashes_of, Checkpoint.encode

    def of_keys(self: IndexTable, topic: bytes, tag: bytes, unique: bytes, keys: bytes) -> list[int]:
        return of_all(self, topic, b"", unique, keys)

    def as_before(self: Checkpoint, *, checked: bool = True) -> bytes:
        self.tags_since = None
        return encode(self, checked=checked)

    monkeypatch.setattr("messagestore.dispatch.dispatcher.NUMPY", False)
    monkeypatch.setattr("nativepath.presence.native", None)
    monkeypatch.setattr(IndexTable, "hashes_of", of_keys)
    monkeypatch.setattr(Checkpoint, "encode", as_before)


async def files_examined(store: MessageStore) -> None:
    """Wait until the files of another version were examined."""
    index: Any = store._index
    for _ in range(MOMENTS):
        if not index.asks_files:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("files are files_examined for ever")


def keyed(numbers: Sequence[int]) -> list[tuple[str, bytes, bytes]]:
    return [("T", b"%d" % each, b"KEYS\x01k%d\x02TAGS\x01Tag%d\x02" % (each, each % 2)) for each in numbers]


def test_the_offset_since_which_an_index_has_tags_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over restarts, and until the log starts after it; keys are found all the time."""

    async def scenario() -> None:
        with monkeypatch.context() as before:
            without_tags(before)
            store = await opened(tmp_path)
            append(store, *keyed(range(40)))
            end = store.max_offset()
            await store.stop()
        for life in range(3):
            store = await opened(tmp_path)
            append(store, *keyed([40 + life]))
            await files_examined(store)
            tag = f"Tag{life % 2}"
            assert await bodies(store, tag) == [b"%d" % (40 + each) for each in range(life, -1, -2)]
            assert await bodies(store, "k7", by_tag=False) == [b"7"]
            until = store.tags_missing_until("T")
            (first_after,) = await store.find_by_key("T", "k40", 9, 0, 1 << 62)
            assert until is not None and decode(first_after).store_timestamp >= until
            index: Any = store._index
            assert index.tags_since.phy == end
            await store.stop()
        store = await opened(tmp_path)
        assert store.tags_missing_until("T") is not None
        await store.begin_at(min(end + 4096, store.max_offset()) // 4096 * 4096, lambda: True)
        if store.min_offset() < end:
            await store.begin_at((end // 4096 + 1) * 4096, lambda: True)
        assert (store.tags_missing_until("T") is None) == (store.min_offset() >= end)
        await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(("index", "known"), [("index", False), ("index-5.5.1", True)])
def test_the_index_of_a_java_store_shows_whether_it_has_tags(
    tmp_path: Path, index: str, *, known: bool
) -> None:
    """The index of 5.5.1 is searched and kept; in that of 5.3.3 nothing is found, and tags are known to be
    missing."""

    async def scenario() -> None:
        settings = lay_out("clean-shutdown", tmp_path, queues=True, index=index)
        before = {path: path.read_bytes() for path in (tmp_path / "index").iterdir()}
        lines = [line for line in golden_lines("clean-shutdown") if line["record"] != "BLANK"]
        tagged = [line for line in lines if line["properties"].get("TAGS")]
        topic, tag = tagged[0]["topic"], tagged[0]["properties"]["TAGS"]
        due = [
            line["physicalOffset"]
            for line in tagged
            if line["topic"] == topic and line["properties"]["TAGS"] == tag
        ]
        for _ in range(2):
            store = open_store(tmp_path, settings)
            await store.start()
            await files_examined(store)
            records = await store.find_by_key(topic, tag, 64, 0, 1 << 62, by_tag=True)
            found = [decode(record).physical_offset for record in records]
            assert found == (due[::-1][:64] if known else [])
            if known:
                since: Any = store._index
                assert since.tags_since.phy <= due[0]
            else:
                assert store.tags_missing_until(topic) is not None
            await store.stop()
        assert {path: path.read_bytes() for path in before} == before

    asyncio.run(scenario())


def test_entries_appended_by_an_older_version_are_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed before it saved a checkpoint, so the old checkpoint still says that all entries have
    tags."""

    async def scenario() -> None:
        store = await opened(tmp_path)
        append(store, *keyed(range(20)))
        await store.stop()
        said = (tmp_path / "checkpoint").read_bytes()
        assert decode_checkpoint(said).tags_since == tuple(ALL_TAGS)
        with monkeypatch.context() as between:
            without_tags(between)
            store = await opened(tmp_path)
            append(store, *keyed(range(20, 40)))
            end = store.max_offset()
            await store.stop()
        page = bytearray((tmp_path / "checkpoint").read_bytes())
        page[TAGS_SINCE_AT : TAGS_SINCE_AT + 24] = said[TAGS_SINCE_AT : TAGS_SINCE_AT + 24]
        (tmp_path / "checkpoint").write_bytes(page)
        store = await opened(tmp_path)
        await asyncio.sleep(0.3)
        await files_examined(store)
        index: Any = store._index
        assert index.tags_since.phy == end and store.tags_missing_until("T") is not None
        append(store, *keyed([40]))
        assert (await bodies(store, "Tag0"))[0] == b"40"
        await store.stop()

    asyncio.run(scenario())


def test_records_appended_after_a_truncation_have_their_tags(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await opened(tmp_path)
        append(store, *keyed(range(9)))
        index: Any = store._index
        index.tags_since = TagsSince(store.max_offset(), 7)
        (fifth,) = await store.find_by_key("T", "k4", 1, 0, 1 << 62)
        cut = decode(fifth).physical_offset
        await store.truncate(cut)
        assert index.tags_since == TagsSince(cut, 7)
        await store.stop()

    asyncio.run(scenario())


def test_a_checkpoint_stores_tags_since_and_checkpoints_of_others_do_not() -> None:
    page = Checkpoint(5, 5, 5, 0, 100, tags_since=(64, 9)).encode()
    assert decode_checkpoint(page).tags_since == (64, 9)
    assert decode_checkpoint(Checkpoint(5, 5, 5, 0, 100).encode()).tags_since is None
    by_java = bytearray(page)
    by_java[0:8] = (12_345).to_bytes(8, "big")
    by_java[8:16] = (12_345).to_bytes(8, "big")
    assert (
        decode_checkpoint(bytes(by_java)).java_wrote and decode_checkpoint(bytes(by_java)).tags_since is None
    )
    damaged = bytearray(page)
    damaged[TAGS_SINCE_AT + 7] ^= 1
    assert decode_checkpoint(bytes(damaged)).ours and decode_checkpoint(bytes(damaged)).tags_since is None
