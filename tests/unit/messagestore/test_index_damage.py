"""Index files damaged while no store ran: their keys are found again, and every query ends."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from messagestore.dispatch.indexmending import IndexMending
from messagestore.index.file import DOUBT, ENTRY, HEADER
from messagestore.index.soundness import Chains
from messagestore.index.table import IndexTable
from messagestore.record import QueueFacts, decode
from messagestore.store.messagestore import MessageStore
from tests.unit.messagestore.storehelp import dispatch_all, master, message, open_store, small_settings

COUNT = 150
SLOTS, ENTRIES = 16, 64
PER_FILE = 63
"""Entries of a full file: the first slot is unused."""
ENTRIES_AT = HEADER.size + 4 * SLOTS
FILE_BYTES = ENTRIES_AT + ENTRY.size * ENTRIES
MOMENTS = 160
"""Retries, 50 ms apart, until all keys are found."""
Damage = Callable[[Path], object]


def files_of(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


async def filled(root: Path, *, clean: bool = True) -> None:
    """Fill a store with two entries per message: five files, the last with 48 of 63 entries."""
    store = await master(root)
    append(store, range(COUNT))
    await store.stop()
    if not clean:
        (root / "abort.spare").rename(root / "abort")
    assert [path.stat().st_size for path in files_of(root)] == [FILE_BYTES] * 5


def append(store: MessageStore, numbers: range) -> None:
    for number in numbers:
        properties = b"KEYS\x01k%d\x02UNIQ_KEY\x01U%d\x02" % (number, number)
        store.append([message(b"%d" % number, properties=properties)])
    dispatch_all(store)


async def missed(store: MessageStore, numbers: range) -> str | None:
    """A key that does not find its message, or None."""
    for key, number in [(f"{kind}{number}", number) for number in numbers for kind in "kU"]:
        records = await store.find_by_key("TopicTest", key, 9, 0, 1 << 62)
        if [decode(record).body for record in records] != [b"%d" % number]:
            return key
    return None


def named(record: logging.LogRecord) -> Any:
    """The file that a log record names."""
    return getattr(record, "fields", {}).get("file")


async def becomes_true(condition: Callable[[], Awaitable[bool]]) -> bool:
    for _ in range(MOMENTS):
        if await condition():
            return True
        await asyncio.sleep(0.05)
    return False


def at(number: int, strike: Callable[[Path], object]) -> Damage:
    return lambda root: strike(files_of(root)[number])


def overwrite(start: int, content: bytes) -> Callable[[Path], object]:
    def strike(path: Path) -> None:
        page = bytearray(path.read_bytes())
        page[start : start + len(content)] = content
        path.write_bytes(page)

    return strike


def emptied(path: Path) -> object:
    return path.write_bytes(b"")


def cut_short(path: Path) -> object:
    return path.write_bytes(path.read_bytes()[:700])


def noise(size: int) -> bytes:
    return random.Random(31).randbytes(size)


def points(entry: int, previous: int) -> Callable[[Path], object]:
    return overwrite(ENTRIES_AT + ENTRY.size * entry + 16, previous.to_bytes(4, "big"))


HALF = ENTRIES_AT + 20 * 30
DAMAGES: dict[str, Damage] = {
    "first file of 0 bytes": at(0, emptied),
    "file in the middle of 0 bytes": at(2, emptied),
    "last file of 0 bytes": at(-1, emptied),
    "file cut short": at(2, cut_short),
    "last file cut short": at(-1, cut_short),
    "first file deleted": at(0, Path.unlink),
    "file in the middle deleted": at(2, Path.unlink),
    "two files deleted": lambda root: [path.unlink() for path in files_of(root)[1:3]],
    "last file deleted": at(-1, Path.unlink),
    "last two files deleted": lambda root: [path.unlink() for path in files_of(root)[3:]],
    "random bytes in a file": at(2, overwrite(0, noise(FILE_BYTES))),
    "random bytes in the last file": at(-1, overwrite(0, noise(FILE_BYTES))),
    "random bytes among entries": at(1, overwrite(HALF, noise(60))),
    "random bytes among the last entries": at(-1, overwrite(HALF, noise(60))),
    "random bytes in slots": at(1, overwrite(HEADER.size, noise(4 * SLOTS))),
    "random bytes in a header": at(1, overwrite(0, noise(HEADER.size))),
    "tail of zeros": at(1, overwrite(HALF, bytes(FILE_BYTES - HALF))),
    "tail of zeros in the last file": at(-1, overwrite(HALF, bytes(FILE_BYTES - HALF))),
    "slots of zeros": at(3, overwrite(HEADER.size, bytes(4 * SLOTS))),
    "header of zeros": at(3, overwrite(0, bytes(HEADER.size))),
    "last header of zeros": at(-1, overwrite(0, bytes(HEADER.size))),
    "header counts too few": at(2, overwrite(36, (9).to_bytes(4, "big"))),
    "header ends too early": at(2, overwrite(24, (1).to_bytes(8, "big"))),
    "header of another time": at(2, overwrite(0, (1 << 50).to_bytes(8, "big"))),
}  # fmt: skip


@pytest.mark.parametrize(("clean", "near"), [(True, 0), (False, 1 << 20)], ids=["stopped", "killed"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_keys_are_found_after_index_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Damage, near: int, *, clean: bool
) -> None:
    """All files are rebuilt while the store runs, or those at the end of the log at its start."""
    monkeypatch.setattr("messagestore.dispatch.indexmending.NEAR_BYTES", near)

    async def scenario() -> None:
        await filled(tmp_path, clean=clean)
        damage(tmp_path)
        for life in range(2):
            store = await master(tmp_path)
            append(store, range(COUNT + life, COUNT + life + 1))
            now = range(COUNT + life + 1)

            async def all_found(store: MessageStore = store, now: range = now) -> bool:
                return not await missed(store, now) and store.index_is_filled

            assert await becomes_true(all_found), await missed(store, now)
            await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("number", [0, 2, 4])
def test_one_damaged_index_file_is_logged_and_the_others_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    async def scenario() -> None:
        await filled(tmp_path)
        before = {path: path.read_bytes() for path in files_of(tmp_path)}
        damaged = files_of(tmp_path)[number]
        damaged.write_bytes(noise(FILE_BYTES))
        caplog.set_level(logging.WARNING)
        store = open_store(tmp_path)
        await store.start()
        await rebuilt(store)
        await store.stop()
        warned = [name for name in map(named, caplog.records) if name]
        assert warned == [damaged.name]
        assert [path.read_bytes() == content for path, content in before.items() if path != damaged] == [
            True
        ] * 4

    asyncio.run(scenario())


async def rebuilt(store: MessageStore) -> None:
    async def all_found() -> bool:
        return not await missed(store, range(COUNT)) and store.index_is_filled

    assert await becomes_true(all_found), await missed(store, range(COUNT))


def test_an_intact_index_is_not_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        await filled(tmp_path)
        before = {path: path.read_bytes() for path in files_of(tmp_path)}
        caplog.set_level(logging.WARNING)
        for _ in range(2):
            store = open_store(tmp_path)
            await store.start()
            await asyncio.sleep(0.3)
            await store.stop()
        assert {path: path.read_bytes() for path in files_of(tmp_path)} == before
        assert not caplog.records

    asyncio.run(scenario())


LOOP = 0


@pytest.mark.parametrize("number", [1, -1])
@pytest.mark.parametrize("previous", [LOOP, 40, 2**31 - 1, 2**32 - 1])
def test_a_query_over_a_broken_chain_ends_and_the_file_is_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int, previous: int
) -> None:
    """Each entry points to itself, to a newer entry, or out of the file. The file is damaged while the store
    runs, after the checks of its start."""

    async def scenario() -> None:
        await filled(tmp_path)
        store = open_store(tmp_path)
        await store.start()
        await asyncio.sleep(0.3)
        index: Any = store._index
        file = index.files[number]
        for entry in range(1, file.index_count):
            at = ENTRIES_AT + ENTRY.size * entry
            value = ENTRY.unpack_from(file.view, at)[0]
            file.view[at + 16 : at + 20] = (previous or entry).to_bytes(4, "big")
        assert list(file.find(value, 0, 1 << 62))[-1] == DOUBT
        await rebuilt(store)
        assert file not in index.files
        assert file.file.name in map(named, caplog.records)
        await store.become_master()
        append(store, range(COUNT, COUNT + 5))
        assert not await missed(store, range(COUNT + 5))
        await store.stop()

    asyncio.run(scenario())


def test_the_file_of_an_entry_that_points_to_no_record_is_rebuilt(tmp_path: Path) -> None:
    async def scenario() -> None:
        await filled(tmp_path)
        store = open_store(tmp_path)
        await store.start()
        await asyncio.sleep(0.3)
        index: Any = store._index
        file = index.files[1]
        file.view[ENTRIES_AT + ENTRY.size * 30 + 11] ^= 1
        await rebuilt(store)
        assert file not in index.files
        await store.stop()

    asyncio.run(scenario())


def test_a_full_index_file_is_checked_in_one_slice_per_loop_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """180,000 entries."""
    slices: list[tuple[int, int]] = []  # turn of the loop, bytes
    turn = 0

    def noted(name: str, fault: Callable[..., str | None]) -> None:
        def look(self: Chains, content: bytes, *rest: Any) -> str | None:
            slices.append((turn, len(content)))
            return fault(self, content, *rest)

        monkeypatch.setattr(Chains, name, look)

    async def scenario() -> None:
        nonlocal turn
        settings = small_settings(
            mapped_file_size_commit_log=32 << 20, max_index_num=200_000, max_hash_slot_num=50_000
        )
        store = open_store(tmp_path, settings)
        await store.start()
        await store.become_master()
        properties = b"KEYS\x01" + b" ".join(b"%d" % number for number in range(3_000)) + b"\x02"
        store.append([message(properties=properties) for _ in range(60)])
        dispatch_all(store)
        await store.stop()
        noted("entries_fault", Chains.entries_fault)
        noted("slots_ahead", Chains.slots_ahead)
        store = open_store(tmp_path, settings)
        await store.start()
        whole = 180_000 * ENTRY.size + 50_000 * 4
        while sum(size for _, size in slices) < whole:
            turn += 1
            await asyncio.sleep(0)
        await store.stop()
        assert sum(size for _, size in slices) == whole
        turns = [number for number, _ in slices]
        assert len(set(turns)) == len(turns)
        assert max(size for _, size in slices) <= 4_096 * ENTRY.size

    asyncio.run(scenario())


@pytest.mark.parametrize(("bytes_per_second", "is_found"), [(0, False), (8 << 20, True)])
def test_index_entries_are_scrubbed_unless_the_scrub_is_disabled(
    tmp_path: Path, bytes_per_second: int, is_found: bool
) -> None:
    async def scenario() -> None:
        await filled(tmp_path)
        DAMAGES["random bytes among entries"](tmp_path)
        damaged = files_of(tmp_path)[1].read_bytes()
        store = open_store(tmp_path, small_settings(scrub_bytes_per_second=bytes_per_second))
        await store.start()
        if is_found:
            await rebuilt(store)
            assert not await missed(store, range(COUNT))
        else:
            await asyncio.sleep(0.3)
            assert files_of(tmp_path)[1].read_bytes() == damaged
        await store.stop()

    asyncio.run(scenario())


def indexed(store: MessageStore) -> list[int]:
    """The physical offsets of all entries, by file."""
    index: Any = store._index
    return [
        ENTRY.unpack_from(file.view, HEADER.size + 4 * file.slots + ENTRY.size * number)[1]
        for file in index.files
        for number in range(1, file.index_count)
    ]


def test_records_appended_while_a_gap_is_filled_are_indexed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last file is missing too, so there is a gap before the new records."""
    monkeypatch.setattr("messagestore.dispatch.indexmending.NEAR_BYTES", 0)
    fill, more = IndexMending._fill_gap, list[int]()

    async def scenario() -> None:
        await filled(tmp_path)
        for path in (files_of(tmp_path)[1], files_of(tmp_path)[-1]):
            path.unlink()
        store = open_store(tmp_path)

        async def one_comes(self: IndexMending, *gap: Any) -> None:
            await fill(self, *gap)
            if len(more) < 3:
                more.append(COUNT + len(more))
                append(store, range(more[-1], more[-1] + 1))

        monkeypatch.setattr(IndexMending, "_fill_gap", one_comes)
        await store.start()
        await store.become_master()
        await rebuilt(store)
        positions = indexed(store)
        assert more and not await missed(store, range(COUNT + len(more)))
        assert positions == sorted(positions) and len(positions) == 2 * (COUNT + len(more))
        await store.stop()

    asyncio.run(scenario())


async def nothing_filled(self: IndexMending) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("geometry", [True, False], ids=["another geometry", "no files"])
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_missing_index_is_built_while_the_store_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, geometry: bool, clean: bool
) -> None:
    """The log is longer than a start scans. A process that ends during the build is followed by one that
    finishes."""
    monkeypatch.setattr("messagestore.dispatch.indexmending.NEAR_BYTES", 0)

    async def scenario() -> None:
        await filled(tmp_path)
        settings = small_settings(max_index_num=100, max_hash_slot_num=10) if geometry else small_settings()
        if not geometry:
            for path in files_of(tmp_path):
                path.unlink()
        for life in range(3):
            count = COUNT + life
            with monkeypatch.context() as first:
                if life == 0:
                    first.setattr(IndexMending, "_fill", nothing_filled)
                store = open_store(tmp_path, settings)
                report = await store.start()
                await store.become_master()
                append(store, range(count, count + 1))
                assert report.dispatched_offset == report.max_offset
                if life == 0:
                    assert await missed(store, range(1)) and not store.index_is_filled
                    assert not await missed(store, range(count, count + 1))
                else:
                    now = range(count + 1)

                    async def all_found(store: MessageStore = store, now: range = now) -> bool:
                        return not await missed(store, now) and store.index_is_filled

                    assert await becomes_true(all_found), await missed(store, now)
                    assert len(indexed(store)) == 2 * (count + 1)
                await store.stop()
                if not clean:
                    (tmp_path / "abort.spare").rename(tmp_path / "abort")

    asyncio.run(scenario())


def put_as_java(
    self: IndexTable, phy: int, facts: QueueFacts, tag: bytes, unique: bytes, keys: bytes
) -> None:
    """Put each entry where there is room: those of a record may be in two files. Upstream:
    IndexService.putKey."""
    if phy < self.phy_end:
        return
    for value in self.hashes_of(facts.topic, tag, unique, keys):
        file = self.newest
        if file is None or not file.room_for(1):
            file = self._new_file()
        file.reserve(1)
        file.put([value], phy, facts.store_timestamp)
        self._written(file)
    self.phy_end = phy + 1


@pytest.mark.parametrize("near", [0, 1 << 20])
@pytest.mark.parametrize("number", range(5))
def test_a_record_with_entries_in_two_java_files_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, near: int
) -> None:
    """One of the files is deleted; entries of the record in the other file are not repeated."""
    monkeypatch.setattr("messagestore.dispatch.indexmending.NEAR_BYTES", near)

    async def scenario() -> None:
        with monkeypatch.context() as java:
            java.setattr(IndexTable, "put", put_as_java)
            java.setattr("nativepath.presence.native", None)
            await filled(tmp_path)
        store = open_store(tmp_path)
        await store.start()
        await asyncio.sleep(0.3)
        positions = indexed(store)
        assert len(positions) == 2 * COUNT and len(files_of(tmp_path)) == 5
        index: Any = store._index
        splits = [before.end_phy == behind.begin_phy for before, behind in itertools.pairwise(index.files)]
        assert splits == [True, False, True, False]
        await store.stop()
        files_of(tmp_path)[number].unlink()
        for _ in range(2):
            store = open_store(tmp_path)
            await store.start()
            await rebuilt(store)
            assert indexed(store) == positions
            await store.stop()

    asyncio.run(scenario())
