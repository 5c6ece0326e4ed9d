"""Files in memory behave as files on a disk: one scenario runs on both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from mqruntime.memoryruntime import MemoryFiles
from mqruntime.realruntime import real_runtime
from mqruntime.runtime import Runtime
from mqruntime.storelock import StoreLocked


@pytest.fixture(params=["disk", "memory"])
def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Runtime]:
    """Makes one over the same root each time."""
    if request.param == "disk":
        return lambda: real_runtime(tmp_path)
    files = MemoryFiles()
    return files.runtime


def test_small_files(runtime: Callable[[], Runtime]) -> None:
    async def story() -> None:
        files = runtime().files
        await files.replace("a/b.json", b"1")
        await files.replace("c", b"2")
        await files.rename("c", "d")
        assert await files.names("") == ["a/b.json", "d"] and await files.names("a") == ["a/b.json"]
        await files.overwrite("d", b"3")
        for wrong in (files.overwrite("gone", b""), files.rename("gone", "e")):
            with pytest.raises(FileNotFoundError):
                await wrong
        assert [await runtime().files.read(name) for name in ("a/b.json", "c", "d")] == [b"1", None, b"3"]
        assert await files.move("a", "aside") and not await files.move("a", "aside")
        assert await files.names("") == ["aside/a/b.json", "d"]
        await files.discard("aside")
        await files.remove("gone")
        assert await files.names("") == ["d"] and await files.immovable(["d"]) == []

    asyncio.run(story())


def test_segments(runtime: Callable[[], Runtime]) -> None:
    async def story() -> None:
        root = runtime().segments
        folder = root.subdirectory("log").subdirectory("data")
        assert folder.names() == [] and root.subdirectories() == []
        file = folder.create("00", 8192)
        file.reserve(8192)
        file.view()[10:12] = b"hi"
        await file.sync(0, 8192)
        with pytest.raises(FileExistsError):
            folder.create("00", 8192)
        again = runtime().segments.subdirectory("log").subdirectory("data")
        assert again.names() == [("00", 8192)] and root.subdirectories() == ["log"]
        assert again.open("00").read_now(10, 12) == await again.open("00").read_cold(10, 12) == b"hi"
        assert await again.open("00").examine(10, 13, len) == 3
        await folder.delete("00")
        assert folder.names() == []
        for gone in (folder.delete("00"), _opened(runtime, "00")):
            with pytest.raises(FileNotFoundError):
                await gone
        assert root.disk_space().free_bytes > 0

    asyncio.run(story())


async def _opened(runtime: Callable[[], Runtime], name: str) -> None:
    runtime().segments.subdirectory("log").subdirectory("data").open(name)


def test_the_lock_of_a_memory_root_is_given_back() -> None:
    files = MemoryFiles()
    one, other = files.runtime().lock, files.runtime().lock
    one.acquire()
    with pytest.raises(StoreLocked):
        other.acquire()
    other.release()
    with pytest.raises(StoreLocked):
        other.acquire()
    one.release()
    other.acquire()
