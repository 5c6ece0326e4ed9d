"""Checkpoint pages of this implementation, of its older versions, and of Java brokers before or after it."""

from __future__ import annotations

import asyncio
import errno
import gzip
import os
import struct
import zlib
from pathlib import Path

import pytest

from messagestore.checkpoint import Checkpoint, CheckpointDamaged, decode_checkpoint, says_tables
from tests.unit.messagestore.storehelp import (
    GOLDEN,
    dispatch_all,
    lay_out,
    master,
    message,
    open_store,
    queue_entries,
)

PAGE_BYTES = 4096
JAVA_551 = gzip.decompress((GOLDEN / "checkpoint-5.5.1.gz").read_bytes())
TIMES = 1_795_000_000_000


def values(confirm: int, *, time: int = TIMES) -> bytes:
    return struct.pack(">5q", time, time, time, 0, confirm)


def page_of_an_older_version(confirm: int) -> bytes:
    front = values(confirm)
    return (front + struct.pack(">Q", 1 << 32 | zlib.crc32(front))).ljust(PAGE_BYTES, b"\0")


def written_by_java(page: bytes, front: bytes) -> bytes:
    """Java maps the page and writes only its values."""
    return front + page[len(front) :]


def marks(root: Path) -> list[str]:
    return sorted(file.name for file in root.glob("abort*"))


def test_a_checkpoint_leaves_upstreams_bytes_and_ends_with_its_checksum() -> None:
    page = Checkpoint(TIMES, TIMES, TIMES, 0, 5_000).encode()
    assert len(page) == PAGE_BYTES
    assert page[:40] == values(5_000)
    assert page[40:4080] == bytes(4040)
    assert struct.unpack_from(">Q", page, 4080) == (1 << 32 | zlib.crc32(page[:48]),)
    assert page[4088:] == bytes(8)
    assert (
        Checkpoint(TIMES, TIMES, TIMES, 0, 5_000, tables=True).encode()
        == page[:4072] + b"mqtables" + page[4080:]
    )
    found = decode_checkpoint(page)
    assert (found, found.ours, found.java_wrote) == (Checkpoint(TIMES, TIMES, TIMES, 0, 5_000), True, False)


def test_a_checkpoint_of_upstream_5_5_is_read_as_upstreams() -> None:
    found = decode_checkpoint(JAVA_551)
    assert (found.confirm_phy_offset, found.logics_physical_offset) == (27735, 27460)
    assert (found.ours, found.java_wrote) == (False, False)


@pytest.mark.parametrize(
    "logics_offset", [1, 27_460, 1 << 32, 5_369_592_383, (1 << 33) - 1, 1 << 33, 1 << 45]
)
def test_any_logics_offset_of_upstream_is_accepted(logics_offset: int) -> None:
    found = decode_checkpoint(JAVA_551[:40] + struct.pack(">q", logics_offset) + JAVA_551[48:])
    assert (found.confirm_phy_offset, found.logics_physical_offset) == (27735, logics_offset)
    assert not found.ours


def test_a_checkpoint_of_an_older_version_is_still_valid() -> None:
    found = decode_checkpoint(page_of_an_older_version(5_000))
    assert (found, found.ours) == (Checkpoint(TIMES, TIMES, TIMES, 0, 5_000), True)


@pytest.mark.parametrize("fields", [5, 6], ids=["5.3", "5.5"])
@pytest.mark.parametrize("older", [False, True])
def test_a_stale_checksum_means_that_java_wrote_since(older: bool, fields: int) -> None:
    page = page_of_an_older_version(5_000) if older else Checkpoint(TIMES, TIMES, TIMES, 0, 5_000).encode()
    front = values(7_000, time=TIMES + 80_001) + (struct.pack(">q", 6_900) if fields == 6 else b"")
    found = decode_checkpoint(written_by_java(page, front))
    assert (found.confirm_phy_offset, found.ours) == (7_000, False)
    assert found.java_wrote or (older and fields == 6)
    assert fields == 5 or found.logics_physical_offset == 6_900


@pytest.mark.parametrize("older", [False, True])
def test_one_flipped_bit_is_damage(older: bool) -> None:
    page = page_of_an_older_version(5_000) if older else Checkpoint(TIMES, TIMES, TIMES, 0, 5_000).encode()
    places = (*range(48),) if older else (*range(48), *range(4080, 4088))
    for bit in (8 * at + bit for at in places for bit in range(8)):
        if older and 8 * 40 <= bit < 8 * 44:
            continue  # then it counts as an offset of upstream
        flipped = bytearray(page)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CheckpointDamaged):
            decode_checkpoint(bytes(flipped))


@pytest.mark.parametrize(
    "front",
    [
        bytes(48),
        b"\xff" * 48,
        bytes(range(100, 148)),
        values(-2) + bytes(8),
        values(1 << 62) + bytes(8),
        values(5_000, time=-1) + bytes(8),
    ],
    ids=["erased", "all ones", "other bytes", "negative offset", "far offset", "negative times"],
)
def test_implausible_checkpoint_values_are_damage(front: bytes) -> None:
    page = Checkpoint(TIMES, TIMES, TIMES, 0, 5_000).encode()
    with pytest.raises(CheckpointDamaged):
        decode_checkpoint(written_by_java(page, front))


def test_a_store_of_upstream_5_5_keeps_its_confirm_offset(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = lay_out("clean-shutdown", tmp_path, queues=True)
        page = (tmp_path / "checkpoint").read_bytes()
        confirm = decode_checkpoint(page).confirm_phy_offset
        (tmp_path / "checkpoint").write_bytes(page[:40] + struct.pack(">q", 369_000) + page[48:])
        store = open_store(tmp_path, settings)
        report = await store.start()
        assert (report.clean, report.confirm_offset) == (True, confirm)
        await store.stop()
        saved = (tmp_path / "checkpoint").read_bytes()
        assert saved[40:48] == bytes(8), "0 means unknown to 5.5"
        assert decode_checkpoint(saved).ours

    asyncio.run(scenario())


@pytest.mark.parametrize("front", [b"", values(0), b"\xff" * 48], ids=["ours", "Java's", "damaged"])
def test_a_checkpoint_keeps_the_tables_flag_with_any_values(tmp_path: Path, front: bytes) -> None:
    path = tmp_path / "checkpoint"

    async def scenario() -> None:
        store = open_store(tmp_path)
        await store.start()
        assert not store.tables_noted and not says_tables(path.read_bytes())
        await store.note_tables()
        assert says_tables(path.read_bytes())
        await store.stop()
        assert says_tables(path.read_bytes())
        path.write_bytes(written_by_java(path.read_bytes(), front))
        again = open_store(tmp_path)
        await again.start(saves=False)
        assert again.tables_noted
        await again.saves_from_now()
        await again.stop()
        assert says_tables(path.read_bytes())

    asyncio.run(scenario())
    assert not says_tables(None) and not says_tables(b"") and not says_tables(JAVA_551)


def test_the_note_of_tables_waits_for_no_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        store = open_store(tmp_path)
        await store.start()

        async def full(name: str, data: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr(store._saved._files, "replace", full)
            await store.note_tables()
        assert not says_tables((tmp_path / "checkpoint").read_bytes())
        await store.stop()
        assert says_tables((tmp_path / "checkpoint").read_bytes())

    asyncio.run(scenario())


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_a_start_without_saving_keeps_the_checkpoint_and_the_abort_file(
    tmp_path: Path, *, clean: bool, damaged: bool
) -> None:
    async def scenario() -> None:
        store = await master(tmp_path)
        store.append([message(properties=b"KEYS\x01k\x02")] * 3)
        dispatch_all(store)
        await store.stop()
        path = tmp_path / "checkpoint"
        page = bytearray(path.read_bytes())
        page[36] ^= damaged << 4
        path.write_bytes(page)
        if not clean:
            (tmp_path / "abort").write_bytes(b"4711")
        names = marks(tmp_path)

        refused = open_store(tmp_path)
        await refused.start(saves=False)
        refused._unsaved.set()
        await refused._save_checkpoint()
        await refused.stop()
        assert path.read_bytes() == bytes(page)
        assert marks(tmp_path) == names

        again = open_store(tmp_path)
        report = await again.start(saves=False)
        assert report.clean is clean
        await again.saves_from_now()
        assert path.read_bytes() != bytes(page) or not damaged
        dispatch_all(again)
        assert [len(entries) for entries in queue_entries(again).values()] == [3]
        await again.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("damaged", [False, True])
def test_a_checkpoint_saved_during_an_index_build_confirms_no_more(tmp_path: Path, *, damaged: bool) -> None:
    async def scenario() -> None:
        settings = lay_out("clean-shutdown", tmp_path, queues=True)
        for file in (tmp_path / "index").iterdir():
            file.unlink()
        page = (tmp_path / "checkpoint").read_bytes()
        if damaged:
            page = b"\xff" * 48 + page[48:]
            (tmp_path / "checkpoint").write_bytes(page)
        store = open_store(tmp_path, settings)
        await store.start(saves=False)
        noted = (tmp_path / "checkpoint").read_bytes()
        await store.stop()
        if damaged:
            assert noted == page
        else:
            found = decode_checkpoint(noted)
            assert (found.ours, found.index_msg_timestamp) == (False, -1)
            assert found.confirm_phy_offset == decode_checkpoint(page).confirm_phy_offset

    asyncio.run(scenario())
