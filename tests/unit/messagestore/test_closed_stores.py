"""What a store leaves behind when it is closed, for the next of ours and for Java's brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from messagestore.store.messagestore import MessageStore
from raftstore.folder import NotClosed, confirmed_end
from tests.unit.messagestore.storehelp import message, open_store
from tests.unit.messagestore.test_store import in_loop


async def closed(root: Path, *, listed: int) -> MessageStore:
    """With three records, of which queues list so many."""
    store = open_store(root)
    await store.start()
    await store.become_master()
    appended = store.append([message() for _ in range(3)])
    store.set_confirm_offset(appended[listed - 1].end_offset)
    while store.dispatch():
        pass
    await store.stop()
    return store


@in_loop
async def test_where_queues_list_all_nothing_says_that_a_store_is_in_use(tmp_path: Path) -> None:
    await closed(tmp_path, listed=3)
    assert not (tmp_path / "abort").exists()


@in_loop
async def test_with_unlisted_records_a_closed_store_looks_killed_to_java_alone(tmp_path: Path) -> None:
    store = await closed(tmp_path, listed=2)
    assert (tmp_path / "abort").read_bytes() == b"stopped\n"
    assert confirmed_end(tmp_path) == store.confirm_offset()
    again = open_store(tmp_path)
    report = await again.start()
    assert (report.clean, report.max_offset) == (True, store.max_offset())
    assert report.confirm_offset == store.confirm_offset() < store.max_offset()
    assert (tmp_path / "abort").read_bytes() == b"running\n"
    again.set_confirm_offset(again.max_offset())
    while again.dispatch():
        pass
    await again.stop()
    assert not (tmp_path / "abort").exists()


@in_loop
async def test_who_is_killed_after_that_was_not_closed(tmp_path: Path) -> None:
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
async def test_who_wrote_the_checkpoint_since_did_not_close_the_store(tmp_path: Path) -> None:
    """Java's brokers before 5 leave what they find in the file, and write no check behind the checkpoint's values."""
    await closed(tmp_path, listed=2)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:40].ljust(4096, b"\0"))
    again = open_store(tmp_path)
    assert not (await again.start()).clean
    await again.stop()
