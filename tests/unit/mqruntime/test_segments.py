from __future__ import annotations

import asyncio
import errno
import mmap
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mqruntime import segments as module
from mqruntime.segments import BadSegmentName, RealSegmentDirectory


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[RealSegmentDirectory]:
    made = RealSegmentDirectory(tmp_path / "commitlog")
    yield made
    made.close()


def mappings(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


def run(make: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await make()

    return asyncio.run(main())


def test_a_created_file_has_its_size_its_blocks_and_zeros(
    directory: RealSegmentDirectory, tmp_path: Path
) -> None:
    file = directory.create("0", 65_536)
    status = (tmp_path / "commitlog" / "0").stat()
    assert status.st_size == 65_536 and status.st_blocks * 512 >= 65_536
    assert bytes(file.view()) == bytes(65_536)
    assert directory.names() == [("0", 65_536)]
    file.close()


def test_a_sparse_file_gets_its_blocks_in_steps(directory: RealSegmentDirectory, tmp_path: Path) -> None:
    file = directory.create("0", 1 << 20, reserve=0)
    path = tmp_path / "commitlog" / "0"
    assert path.stat().st_blocks == 0
    file.view()[10:13] = b"abc"
    file.reserve(65_536)
    assert 65_536 <= path.stat().st_blocks * 512 < 1 << 20
    assert bytes(file.view()[10:13]) == b"abc"
    file.close()


def test_without_fallocate_blocks_are_allocated_by_rewriting_the_content(
    directory: RealSegmentDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    file = directory.create("0", 3 << 20, reserve=0)
    file.view()[5:8] = b"abc"
    file.reserve(3 << 20)
    assert (tmp_path / "commitlog" / "0").stat().st_blocks * 512 >= 3 << 20
    assert bytes(file.view()[:9]) == bytes(5) + b"abc" + bytes(1)
    file.close()


def test_a_full_disk_leaves_no_file_behind(
    directory: RealSegmentDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        directory.create("0", 4096)
    assert list((tmp_path / "commitlog").iterdir()) == []


def test_bytes_written_through_the_view_are_synced_and_read_back(directory: RealSegmentDirectory) -> None:
    async def scenario() -> None:
        file = directory.create("0", 8192)
        file.view()[100:105] = b"hello"
        await file.sync(100, 105)
        assert await file.read_cold(98, 106) == b"\0\0hello\0"
        file.close()
        again = directory.open("0")
        assert bytes(again.view()[100:105]) == b"hello"
        again.close()

    asyncio.run(scenario())


def test_a_view_outlives_close_and_delete_and_then_frees_the_mapping(
    directory: RealSegmentDirectory, tmp_path: Path
) -> None:
    file = directory.create("0", 8192)
    path = tmp_path / "commitlog" / "0"
    view = file.view()[:5]
    view[:] = b"hello"
    run(lambda: directory.delete("0"))
    file.close()
    assert not path.exists() and directory.names() == []
    assert bytes(view) == b"hello"
    assert mappings(path) == 1
    del view
    assert mappings(path) == 0


def test_a_failed_sync_fails_every_later_one(
    directory: RealSegmentDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def scenario() -> None:
        file = directory.create("0", 4096)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", broken)
            with pytest.raises(OSError, match="Input/output error"):
                await file.sync(0, 10)
        with pytest.raises(OSError, match="Input/output error"):
            await file.sync(0, 10)
        file.close()

    asyncio.run(scenario())


def test_clean_pages_are_written_again_after_soil(directory: RealSegmentDirectory, tmp_path: Path) -> None:
    file = directory.create("0", 3 * 4096 + 100)
    file.view()[4000:9000] = b"x" * 5000
    before = bytes(file.view())
    asyncio.run(file.sync(0, file.size_bytes))
    path = next(tmp_path.rglob("0"))
    os.utime(path, (1, 1))
    asyncio.run(file.sync(0, file.size_bytes))
    assert path.stat().st_mtime == 1, "there was nothing to write"
    file.soil(5000, 9000)
    asyncio.run(file.sync(0, file.size_bytes))
    assert path.stat().st_mtime > 1 and bytes(file.view()) == before
    file.close()


def test_closing_waits_for_the_threads_that_use_the_file(
    directory: RealSegmentDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptors: list[int] = []

    def slow(descriptor: int) -> None:
        os.fstat(descriptor)
        descriptors.append(descriptor)

    async def scenario() -> None:
        monkeypatch.setattr(module.os, "fdatasync", slow)
        file = directory.create("0", 4096)
        syncing = asyncio.ensure_future(file.sync(0, 10))
        await asyncio.sleep(0)
        file.close()
        await syncing
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptors[0])

    asyncio.run(scenario())


def test_folders_are_created_by_their_first_file(directory: RealSegmentDirectory, tmp_path: Path) -> None:
    queue = directory.subdirectory("topic").subdirectory("0")
    assert queue.names() == [] and directory.subdirectories() == []
    run(queue.sync_directory)
    queue.create("b", 20).close()
    queue.create("a", 20).close()
    run(queue.sync_directory)
    assert queue.names() == [("a", 20), ("b", 20)]
    assert directory.subdirectories() == ["topic"]
    queue.close()


def test_an_unfinished_file_is_not_listed_and_is_written_over(
    directory: RealSegmentDirectory, tmp_path: Path
) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"0{module.UNFINISHED_SUFFIX}").write_bytes(b"left by a crash")
    assert directory.names() == []
    file = directory.create("0", 20)
    assert bytes(file.view()) == bytes(20)
    file.close()


def test_an_empty_file_opens_with_an_empty_view(directory: RealSegmentDirectory, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "0").touch()
    file = directory.open("0")
    assert (file.size_bytes, len(file.view())) == (0, 0)
    file.close()


def test_names_are_plain_and_taken_names_are_refused(directory: RealSegmentDirectory) -> None:
    for bad in ("", "..", "a/b", "a\0", f"x{module.UNFINISHED_SUFFIX}"):
        with pytest.raises(BadSegmentName):
            directory.create(bad, 1)
    directory.create("0", 1).close()
    with pytest.raises(FileExistsError):
        directory.create("0", 1)
    with pytest.raises(FileNotFoundError):
        directory.open("1")
    with pytest.raises(FileNotFoundError):
        run(lambda: directory.delete("1"))


def test_a_file_that_shrank_is_an_error_and_not_short_data(
    directory: RealSegmentDirectory, tmp_path: Path
) -> None:
    file = directory.create("0", 8192)
    os.truncate(tmp_path / "commitlog" / "0", 100)
    with pytest.raises(OSError, match="file ends early"):
        run(lambda: file.read_cold(0, 200))
    file.close()


def test_the_disk_usage_equals_that_of_df(directory: RealSegmentDirectory, tmp_path: Path) -> None:
    """Also before the folder exists."""
    said = subprocess.run(
        ["df", "--block-size=1", "--output=used,avail,pcent", str(tmp_path)],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    space = directory.disk_space()
    assert space.used * 100 == pytest.approx(int(said[-1].rstrip("%")), abs=1.5)
    assert space == pytest.approx((int(said[-3]), int(said[-2])), rel=0.01), "others write meanwhile"


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files and folders that `fsync` and `fdatasync` were called for, in order."""
    seen: list[Path] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def noted(descriptor: int, real: Callable[[int], None] = real) -> None:
            seen.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
            real(descriptor)

        monkeypatch.setattr(os, name, noted)
    return seen


def test_new_folders_are_synced_with_their_first_file_and_not_before(
    directory: RealSegmentDirectory, tmp_path: Path, synced: list[Path]
) -> None:
    """A store that fills a thousand queues makes a thousand folders between two requests."""
    root = tmp_path / "commitlog"
    directory.create("first", 20).close()
    synced.clear()
    files = [directory.subdirectory("topic").subdirectory(str(n)).create("0", 20) for n in range(3)]
    assert synced == []
    run(lambda: files[0].sync(0, 20))
    assert synced == [root / "topic" / "0" / "0", root / "topic" / "0", root / "topic", root]
    synced.clear()
    run(lambda: files[1].sync(0, 20))  # its folder was there at the sync of the folders above
    assert synced == [root / "topic" / "1" / "0", root / "topic" / "1"]
    files.append(directory.subdirectory("topic").subdirectory("3").create("0", 20))
    synced.clear()
    run(lambda: files[3].sync(0, 20))
    assert synced == [root / "topic" / "3" / "0", root / "topic" / "3", root / "topic"]
    for file in files:
        file.close()


def test_folders_of_an_earlier_process_are_synced_with_the_first_new_file(
    directory: RealSegmentDirectory, tmp_path: Path, synced: list[Path]
) -> None:
    root = tmp_path / "commitlog"
    (root / "topic" / "0").mkdir(parents=True)
    file = directory.subdirectory("topic").subdirectory("0").create("0", 20)
    synced.clear()
    run(lambda: file.sync(0, 20))
    assert synced == [root / "topic" / "0" / "0", root / "topic" / "0", root / "topic", root]
    file.close()


def test_a_file_that_cannot_be_mapped_leaves_nothing_behind(
    directory: RealSegmentDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel has a limit of mappings, and users have one of memory; the file is asked for again later."""

    def no_memory(*_: int) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with monkeypatch.context() as kernel:
        kernel.setattr(mmap, "mmap", no_memory)
        with pytest.raises(OSError, match="Cannot allocate memory.*commitlog/0"):
            directory.create("0", 4096)
    assert list((tmp_path / "commitlog").iterdir()) == []
    directory.create("0", 4096).close()


def test_a_link_to_a_file_is_listed_and_a_dangling_link_is_an_error(
    directory: RealSegmentDirectory, tmp_path: Path
) -> None:
    directory.create("0", 10).close()
    moved = tmp_path / "another disk"
    (tmp_path / "commitlog" / "0").rename(moved)
    (tmp_path / "commitlog" / "0").symlink_to(moved)
    assert directory.names() == [("0", 10)]
    moved.rename(tmp_path / "not mounted")
    with pytest.raises(FileNotFoundError, match="commitlog/0"):
        directory.names()
