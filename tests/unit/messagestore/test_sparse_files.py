"""Files with holes: upstream creates them, some tools copy them, and queues and the index have them by
design. A mapped write into a hole on a full disk kills the process silently; in a memory file system even a
mapped read does."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from messagestore.index.table import IndexTable
from messagestore.log.commitlog import CommitLog
from messagestore.queues.consumequeue import ConsumeQueue
from messagestore.record import QueueFacts
from messagestore.walker import segment_name
from mqruntime.diskfull import RETRY_S
from mqruntime.segments import RealSegmentDirectory
from tests.unit.messagestore.storehelp import master, message, open_store

SEGMENT = 64 << 10
QUEUE_FILE = 20 * 16_000
SLOTS, ENTRIES = 4_000, 20_000
IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in a file system in memory."""
    if not IN_MEMORY.is_dir():
        pytest.skip("no file system in memory")
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield Path(folder)


def full(*_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def blocks(folder: Path) -> dict[str, int]:
    """The blocks of the files below `folder`."""
    return {path.name: path.stat().st_blocks for path in folder.rglob("*") if path.is_file()}


def test_a_sparse_segment_gets_its_blocks_before_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RealSegmentDirectory(tmp_path)
    directory.create(segment_name(0), SEGMENT, reserve=0).close()
    log = CommitLog(directory, SEGMENT, hot_segments=2)

    async def story() -> None:
        await log.load(0, never_saved=False)
        await log.found_end(0)
        with monkeypatch.context() as disk:
            disk.setattr(os, "posix_fallocate", full)
            with pytest.raises(OSError, match="No space left"):
                log.tail(100)
            with pytest.raises(OSError, match="No space left"):
                log.write_view(0, 100)
            assert not log.has_room_for(100)
            assert log.wants_next(), "it is retried without a send"
        await asyncio.sleep(RETRY_S)
        await log.prepare_next()
        assert log.has_room_for(100)
        assert log.tail(100)[1] == 0

    asyncio.run(story())
    assert blocks(tmp_path)[segment_name(0)] * 512 >= SEGMENT
    assert not log.wants_next()


def test_a_sparse_segment_is_not_truncated_before_it_has_its_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store = await master(tmp_path)
        store.append([message(bytes(1000)) for _ in range(8)])
        await store.stop()
        again = open_store(tmp_path)
        await again.start()
        end = again.max_offset()
        with monkeypatch.context() as disk:
            disk.setattr(os, "posix_fallocate", full)
            with pytest.raises(OSError, match="No space left"):
                await again.truncate(1000)
        assert again.max_offset() == end
        await again.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("count", [0, 10, 3_276, 10_000, 16_010])
def test_opening_a_queue_does_not_fill_its_holes(memory: Path, count: int, trusted: bool) -> None:
    queue = ConsumeQueue(RealSegmentDirectory(memory), QUEUE_FILE, "T", 0)
    for number in range(count):
        queue.append(number, number * 100, 100, 0)
    queue.close()
    if count == 0:  # the disk was full when the file was to get its first blocks
        RealSegmentDirectory(memory).create(segment_name(0), QUEUE_FILE, reserve=0).close()
    before = blocks(memory)
    again = ConsumeQueue(RealSegmentDirectory(memory), QUEUE_FILE, "T", 0)
    asyncio.run(again.load(0, 1 << 40, trusted=trusted))
    assert again.max_queue_offset == count
    assert blocks(memory) == (before if count else {})


def test_a_new_index_file_is_not_read_before_it_has_blocks(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def table() -> IndexTable:
        return IndexTable(RealSegmentDirectory(memory), SLOTS, ENTRIES, lambda: 1_700_000_000_000)

    facts = QueueFacts(100, b"T", 0, 0, 0, 5_000, b"KEYS\x01k\x02")
    index = table()
    with monkeypatch.context() as disk:
        disk.setattr(os, "posix_fallocate", full)
        with pytest.raises(OSError, match="No space left"):
            index.put(0, facts, b"", b"", b"k")
    assert list(blocks(memory).values()) == [0]
    again = table()
    asyncio.run(again.load(0, trusted=False))
    assert blocks(memory) == {}
    index.put(0, facts, b"", b"", b"k")
    assert list(index.find("T", "k", 0, 1 << 62)) == [0]
