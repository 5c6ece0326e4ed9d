"""Index files that were damaged while no store ran: their keys are found again, and a query ends whatever it meets."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from messagestore.index.file import DOUBT, ENTRY, HEADER
from messagestore.index.soundness import Chains
from messagestore.record import decode
from messagestore.store import MessageStore
from tests.unit.messagestore.storehelp import message, open_store, small_settings

COUNT = 150
SLOTS, ENTRIES = 16, 64
PER_FILE = 63
"""Entries of a full file: the first place is not used."""
ENTRIES_AT = HEADER.size + 4 * SLOTS
FILE_BYTES = ENTRIES_AT + ENTRY.size * ENTRIES
MOMENTS = 160
"""Of 50 ms and more, until all is found again."""
Damage = Callable[[Path], object]


def files_of(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


async def filled(root: Path, *, clean: bool = True) -> None:
    """Two entries a message: five files, the last with 48 of 63 entries."""
    store = open_store(root)
    await store.start()
    await store.become_master()
    append(store, range(COUNT))
    await store.stop()
    if not clean:
        (root / "abort.spare").rename(root / "abort")
    assert [path.stat().st_size for path in files_of(root)] == [FILE_BYTES] * 5


def append(store: MessageStore, numbers: range) -> None:
    for number in numbers:
        properties = b"KEYS\x01k%d\x02UNIQ_KEY\x01U%d\x02" % (number, number)
        store.append([message(b"%d" % number, properties=properties)])
    store.set_confirm_offset(store.max_offset())
    while store.dispatch():
        pass


async def missed(store: MessageStore, numbers: range) -> str | None:
    """A key that does not lead to its message."""
    for key, number in [(f"{kind}{number}", number) for number in numbers for kind in "kU"]:
        records = await store.find_by_key("TopicTest", key, 9, 0, 1 << 62)
        if [decode(record).body for record in records] != [b"%d" % number]:
            return key
    return None


def named(record: logging.LogRecord) -> Any:
    """The file that a line names."""
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
def test_keys_are_found_again_after_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Damage, near: int, *, clean: bool
) -> None:
    """All of them while the store runs, or those at the end of the log at its start."""
    monkeypatch.setattr("messagestore.index.mending.NEAR_BYTES", near)

    async def scenario() -> None:
        await filled(tmp_path, clean=clean)
        damage(tmp_path)
        for life in range(2):
            store = open_store(tmp_path)
            await store.start()
            await store.become_master()
            append(store, range(COUNT + life, COUNT + life + 1))
            now = range(COUNT + life + 1)

            async def all_found(store: MessageStore = store, now: range = now) -> bool:
                return not await missed(store, now) and store.index_is_filled

            assert await becomes_true(all_found), await missed(store, now)
            await store.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("number", [0, 2, 4])
def test_one_damaged_file_is_named_and_the_others_stay(
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


def test_a_sound_index_is_left_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
def test_a_query_over_a_broken_chain_ends_and_has_the_file_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int, previous: int
) -> None:
    """Each entry of a file leads to itself, to one that is newer than most, or out of the file. It is damaged while the store
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


def test_an_entry_that_leads_to_no_record_has_its_file_rebuilt(tmp_path: Path) -> None:
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


def test_a_full_file_is_checked_in_slices_with_turns_for_others_in_between(
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
        store.set_confirm_offset(store.max_offset())
        while store.dispatch():
            pass
        await store.stop()
        noted("entries_fault", Chains.entries_fault)
        noted("slots_fault", Chains.slots_fault)
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
def test_entries_that_no_query_meets_are_checked_unless_the_operator_wants_no_scrub(
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
