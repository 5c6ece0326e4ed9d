"""The files of a closed store, for the next start of this broker and for Java brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from messagestore.store.messagestore import MessageStore
from raftstore.folder import NotClosed, confirmed_end
from tests.unit.messagestore.storehelp import dispatch_all, in_loop, master, message, open_store


async def closed(root: Path, *, listed: int) -> MessageStore:
    """Close a store with three records of which queues list `listed`."""
    store = await master(root)
    appended = store.append([message() for _ in range(3)])
    store.set_confirm_offset(appended[listed - 1].end_offset)
    while store.dispatch():
        pass
    await store.stop()
    return store


@in_loop
async def test_a_closed_store_without_undispatched_records_has_no_abort_file(tmp_path: Path) -> None:
    await closed(tmp_path, listed=3)
    assert not (tmp_path / "abort").exists()


@in_loop
async def test_a_closed_store_with_undispatched_records_looks_killed_only_to_java(tmp_path: Path) -> None:
    store = await closed(tmp_path, listed=2)
    assert (tmp_path / "abort").read_bytes() == b"stopped\n"
    assert confirmed_end(tmp_path) == store.confirm_offset()
    again = open_store(tmp_path)
    report = await again.start()
    assert (report.clean, report.max_offset) == (True, store.max_offset())
    assert report.confirm_offset == store.confirm_offset() < store.max_offset()
    assert (tmp_path / "abort").read_bytes() == b"running\n"
    dispatch_all(again)
    await again.stop()
    assert not (tmp_path / "abort").exists()


@in_loop
async def test_a_store_killed_after_a_clean_close_is_not_closed(tmp_path: Path) -> None:
    await closed(tmp_path, listed=2)
    again = open_store(tmp_path)
    await again.start()
    held = (tmp_path / "abort").read_bytes()
    await again.stop()
    (tmp_path / "abort").write_bytes(held)
    with pytest.raises(NotClosed):
        confirmed_end(tmp_path)
    third = open_store(tmp_path)
    assert not (await third.start()).clean
    await third.stop()


@in_loop
async def test_a_store_whose_checkpoint_was_rewritten_is_not_closed(tmp_path: Path) -> None:
    """Java brokers before 5 keep the rest of the file and write no checksum after the checkpoint's values."""
    await closed(tmp_path, listed=2)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:40].ljust(4096, b"\0"))
    again = open_store(tmp_path)
    assert not (await again.start()).clean
    await again.stop()
