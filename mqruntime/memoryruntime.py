"""A runtime whose files are in memory: for tests, examples, and members that may lose their state.

Invariant: the same code runs over it as over a disk. Data live as long as their `MemoryFiles`, so a server that is stopped and
created again over the same finds its store; nothing survives the process."""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from mqruntime.clock import SystemClock
from mqruntime.network import PLAIN
from mqruntime.runtime import Runtime
from mqruntime.segments import DiskSpace, SoleFile, check_component
from mqruntime.smallfiles import check_name
from mqruntime.storelock import StoreLocked

T = TypeVar("T")

ROOM_BYTES = 1 << 40
"""Free space that `disk_space` reports; memory has other limits."""


class MemoryFiles:
    """One store root: small files and segment files by their path."""

    def __init__(self) -> None:
        self.small: dict[str, bytes] = {}
        self.segments: dict[str, memoryview] = {}
        """For mappings, whose pages take memory once they are written."""
        self.locked = False

    def runtime(self, chance: random.Random | None = None) -> Runtime:
        """The system clock, and this root."""
        return Runtime(
            clock=SystemClock(),
            random=chance or random.Random(),
            files=MemorySmallFiles(self),
            segments=MemoryDirectory(self),
            lock=MemoryLock(self),
            boot_id="",
            network=PLAIN,
        )


class MemoryLock:
    """Keeps two servers of one process out of one root."""

    def __init__(self, root: MemoryFiles) -> None:
        self._root = root
        self._held = False

    def acquire(self) -> None:
        if self._root.locked:
            raise StoreLocked("memory")
        self._root.locked = self._held = True

    def release(self) -> None:
        if self._held:
            self._root.locked = self._held = False


class MemorySmallFiles:
    """See mqruntime.smallfiles; no operation fails because of a disk."""

    def __init__(self, root: MemoryFiles) -> None:
        self._root = root

    @property
    def _files(self) -> dict[str, bytes]:
        return self._root.small

    async def read(self, name: str) -> bytes | None:
        return self._files.get(check_name(name))

    async def replace(self, name: str, data: bytes | bytearray) -> None:
        self._files[check_name(name)] = bytes(data)

    async def overwrite(self, name: str, data: bytes) -> None:
        if check_name(name) not in self._files:
            raise FileNotFoundError(name)
        self._files[name] = bytes(data)

    async def append(self, name: str, data: bytes) -> None:
        self._files[check_name(name)] = self._files.get(name, b"") + data

    async def rename(self, name: str, to: str) -> None:
        if check_name(name) not in self._files:
            raise FileNotFoundError(name)
        self._files[check_name(to)] = self._files.pop(name)

    async def remove(self, name: str) -> None:
        self._files.pop(check_name(name), None)

    async def names(self, under: str) -> list[str]:
        folder = f"{under}/" if under else ""
        return sorted(name for name in self._files if name.startswith(folder))

    async def move(self, name: str, folder: str) -> bool:
        return any([_moved(self._files, name, folder), _moved(self._root.segments, name, folder)])

    async def immovable(self, names: Sequence[str]) -> list[str]:
        return []

    async def discard(self, folder: str) -> None:
        for path in _below(self._files, folder):
            del self._files[path]
        for path in _below(self._root.segments, folder):
            del self._root.segments[path]


def _moved(table: dict[str, T], name: str, folder: str) -> bool:
    start = len(name) - len(name.rpartition("/")[2])
    found = _below(table, check_name(name))
    for path in found:
        table[f"{folder}/{path[start:]}"] = table.pop(path)
    return bool(found)


def _below(table: Mapping[str, object], name: str) -> list[str]:
    return [path for path in table if path == name or path.startswith(f"{name}/")]


class MemorySegment:
    """See mqruntime.segments."""

    def __init__(self, name: str, content: memoryview) -> None:
        self.name = name
        self.size_bytes = len(content)
        self._view = content

    def view(self) -> memoryview:
        return self._view

    def reserve(self, end: int, start: int = 0) -> None:
        pass

    async def reserve_ahead(self, end: int, start: int = 0) -> None:
        pass

    async def sync(self, start: int, end: int) -> None:
        pass

    def soil(self, start: int, end: int) -> None:
        pass

    async def read_cold(self, start: int, end: int) -> bytes:
        return bytes(self._view[start:end])

    async def examine(self, start: int, end: int, use: Callable[[bytes], T]) -> T:
        return use(bytes(self._view[start:end]))

    def read_now(self, start: int, end: int) -> bytes:
        return bytes(self._view[start:end])

    def is_cached(self, start: int, end: int) -> bool:
        return True

    def written(self, start: int, end: int) -> list[tuple[int, int]]:
        return [(start, end)] if start < end else []

    def close(self) -> None:
        pass

    async def release(self) -> None:
        pass


class MemoryDirectory:
    """The folder whose paths begin with `prefix`."""

    open_max = 1_000
    synced_alone_max = 64

    def __init__(self, root: MemoryFiles, prefix: str = "") -> None:
        self._root = root
        self._prefix = prefix

    def names(self) -> list[tuple[str, int]]:
        return sorted((path, len(content)) for path, content in self._below() if "/" not in path)

    def open(self, name: str) -> MemorySegment:
        path = self._prefix + check_component(name)
        if path not in self._root.segments:
            raise FileNotFoundError(path)
        return MemorySegment(name, self._root.segments[path])

    def sole_file(self) -> SoleFile | None:
        return None

    def create(self, name: str, size_bytes: int, *, reserve: int | None = None) -> MemorySegment:
        path = self._prefix + check_component(name)
        if path in self._root.segments:
            raise FileExistsError(path)
        self._root.segments[path] = memoryview(mmap.mmap(-1, size_bytes) if size_bytes else b"")
        return self.open(name)

    async def delete(self, name: str) -> None:
        if self._root.segments.pop(self._prefix + check_component(name), None) is None:
            raise FileNotFoundError(self._prefix + name)

    def subdirectory(self, name: str) -> MemoryDirectory:
        return MemoryDirectory(self._root, f"{self._prefix}{check_component(name)}/")

    def subdirectories(self) -> list[str]:
        return sorted({path.partition("/")[0] for path, _ in self._below() if "/" in path})

    async def sync_directory(self) -> None:
        pass

    async def sync_below(self) -> None:
        pass

    def disk_space(self) -> DiskSpace:
        return DiskSpace(sum(len(content) for content in self._root.segments.values()), ROOM_BYTES)

    def _below(self) -> list[tuple[str, memoryview]]:
        start = len(self._prefix)
        return [
            (path[start:], content)
            for path, content in self._root.segments.items()
            if path.startswith(self._prefix)
        ]
