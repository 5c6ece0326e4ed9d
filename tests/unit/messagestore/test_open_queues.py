"""The number of consume queues with open files has a limit, and closed queues are reopened on use."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
from collections import Counter
from pathlib import Path

import pytest

from messagestore.queues.openqueues import OpenQueues
from messagestore.queues.table import QueueTable
from mqruntime import segments
from mqruntime.segments import RealSegmentDirectory, sync_all_below
from simulation.kernel.node import Node
from simulation.kernel.world import World

FILE_BYTES = 400
PER_FILE = 20
RECORD_BYTES = 100
QUEUES = 12
MOST = 4


class Queue:
    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.used = False
        self._log = log

    def was_used(self) -> bool:
        used, self.used = self.used, False
        return used

    def shut(self) -> None:
        self._log.append(self.name)


def test_the_queue_not_used_since_the_last_check_is_closed_first() -> None:
    shut: list[str] = []
    a, b, c, d = (Queue(name, shut) for name in "abcd")
    opened = OpenQueues(3)
    for queue in (a, b, c):
        opened.opened(queue)
    assert shut == []
    a.used = True
    opened.opened(d)
    assert shut == ["b"]
    opened.opened(b)
    assert shut == ["b", "c"], "a still has its second chance"
    opened.gone(a)
    opened.opened(c)
    assert shut == ["b", "c"]
    for queue in (b, c, d):
        queue.used = True
    opened.opened(a)
    assert shut == ["b", "c", "d"], "all were used: the one checked first is closed"


def test_one_queue_may_always_be_open() -> None:
    shut: list[str] = []
    a, b = Queue("a", shut), Queue("b", shut)
    opened = OpenQueues(0)
    a.used = b.used = True
    opened.opened(a)
    opened.opened(b)
    opened.opened(b)
    assert shut == ["a"]


class Table:
    """A table of a real folder whose open files are counted by their paths."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mqruntime.segments.OPEN_MAX", MOST)
        self.path = path
        self.queues = QueueTable(RealSegmentDirectory(path), FILE_BYTES)

    def open_queues(self) -> int:
        """The number of queues with an open descriptor."""
        found = Counter(
            target.parent
            for link in Path("/proc/self/fd").iterdir()
            if link.is_symlink() and self.path in (target := link.readlink()).parents
        )
        return len(found)

    def write(self, rounds: range) -> None:
        """Append one entry to each queue per round."""
        for round_ in rounds:
            for number in range(QUEUES):
                queue = self.queues.get(b"T", number)
                assert queue is not None
                phy = (round_ * QUEUES + number) * RECORD_BYTES
                assert queue.append(round_, phy, RECORD_BYTES, number)
                assert self.open_queues() <= MOST

    def read(self, number: int) -> list[tuple[int, int, int]]:
        queue = self.queues.find("T", number)
        assert queue is not None
        return list(queue.entries(0, queue.max_queue_offset))


def expected(number: int, rounds: int) -> list[tuple[int, int, int]]:
    return [((round_ * QUEUES + number) * RECORD_BYTES, RECORD_BYTES, number) for round_ in range(rounds)]


def test_many_queues_work_with_few_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        table = Table(tmp_path, monkeypatch)
        table.write(range(PER_FILE + 3))  # into second files
        assert [table.read(number) for number in range(QUEUES)] == [
            expected(number, PER_FILE + 3) for number in range(QUEUES)
        ]
        assert table.open_queues() <= MOST
        await table.queues.sync()
        await table.queues.truncate((PER_FILE - 1) * QUEUES * RECORD_BYTES)
        table.write(range(PER_FILE - 1, PER_FILE + 5))
        await table.queues.sync()
        assert table.open_queues() <= MOST
        table.queues.close()
        assert table.open_queues() == 0
        again = Table(tmp_path, monkeypatch)
        await again.queues.load(0, 1 << 40, trusted=False)
        assert again.open_queues() <= MOST
        assert [again.read(number) for number in range(QUEUES)] == [
            expected(number, PER_FILE + 5) for number in range(QUEUES)
        ]
        again.queues.close()

    asyncio.run(story())


def test_a_started_iterator_continues_after_its_queue_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(tmp_path, monkeypatch)
    table.write(range(3))
    queue = table.queues.find("T", 0)
    assert queue is not None
    begun = queue.entries(0, 3)
    assert next(begun) == expected(0, 3)[0]
    for number in range(1, QUEUES):
        table.read(number)
    queue.shut()
    assert list(begun) == expected(0, 3)[1:]
    del begun
    table.queues.close()
    assert table.open_queues() == 0


@pytest.mark.parametrize("queues", [2, QUEUES])
def test_synced_entries_of_many_queues_survive_a_power_cut(queues: int) -> None:
    for seed in range(6):
        with World(seed) as world:
            node = world.node("broker-0", "10.0.0.1")

            async def fill(node: Node = node) -> None:
                directory = node.runtime().segments.subdirectory("consumequeue")
                table = QueueTable(directory, FILE_BYTES)
                for number in range(queues):
                    queue = table.get(b"T", number)
                    assert queue is not None and queue.append(0, number * RECORD_BYTES, RECORD_BYTES, 7)
                await table.sync()

            async def found(node: Node = node) -> list[tuple[int, int, int]]:
                table = QueueTable(node.runtime().segments.subdirectory("consumequeue"), FILE_BYTES)
                await table.load(0, 1 << 40, trusted=False)
                return [queue.entry(0) for queue in table.all() if queue.max_queue_offset]

            world.run(fill())
            node.kill(power_cut=True)
            expected_entries = [(number * RECORD_BYTES, RECORD_BYTES, 7) for number in range(queues)]
            assert world.run(found()) == expected_entries


def test_without_syncfs_each_file_and_each_folder_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsynced: set[Path] = set()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        fsynced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    root = tmp_path / "root"
    file = root / "a/b/file"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")
    monkeypatch.setattr("mqruntime.segments.syncfs", None)
    monkeypatch.setattr(os, "fsync", fsync)
    sync_all_below(root)
    assert fsynced == {file, file.parent, root / "a", root, tmp_path}
    fsynced.clear()
    sync_all_below(root / "absent")
    assert fsynced == set()


def test_a_failed_syncfs_raises_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def syncfs(descriptor: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr("mqruntime.segments.syncfs", syncfs)
    with pytest.raises(OSError, match="Input/output error") as caught:
        sync_all_below(tmp_path)
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(tmp_path))


@pytest.mark.parametrize(
    ("release", "is_used"),
    [
        ("5.8.0", True),
        ("6.6+", True),
        ("5.15.133.1-microsoft", True),
        ("6.12-rc1", True),
        ("4.18.0-553.el8", False),
        ("?", False),
    ],
)
def test_syncfs_is_used_only_on_kernels_that_report_write_errors(
    monkeypatch: pytest.MonkeyPatch, release: str, is_used: bool
) -> None:
    known = os.uname()
    monkeypatch.setattr(
        os, "uname", lambda: os.uname_result((known[0], known[1], release, known[3], known[4]))
    )
    monkeypatch.setattr("sys.platform", "linux")
    assert (segments._syncfs() is not None) == is_used
