"""The disk of one simulated host; it outlives the processes that use it.

Invariant: bytes that a call of SmallFiles or SegmentFile promised to be durable are there after any crash. Other written bytes
are there completely, in part, or not at all, as the seed decides.

The steps of an operation that takes time are run by timers of the process. So a kill in the middle leaves only the finished
steps done. If a caller is cancelled, the operation on the disk continues. A folder exists as long as there are files below
it."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mqruntime.segments import SOLE_HEAD_MAX, DiskSpace, SoleFile, check_component
from mqruntime.smallfiles import check_name
from mqruntime.storelock import StoreLocked
from simulation.kernel.inode import PAGE_BYTES, Inode
from simulation.kernel.loop import SimulatedLoop
from simulation.kernel.process import Process
from simulation.kernel.trace import Trace

T = TypeVar("T")

SYNC_US = (200, 2_000)
READ_US = (50, 400)
RESERVE_US = (200, 2_000)
NEWEST_FILES = 2
"""So many of the newest files of a folder are in the page cache."""
CACHED_SHARE = 0.5
"""The share of older files that are in the page cache, too, and for how long that stays so."""
CACHED_US = 500_000
PLENTY_BYTES = 1 << 60
"""Free space if no capacity is set."""
OPERATIONS = (
    "read",
    "replace",
    "append",
    "overwrite",
    "rename",
    "remove",
    "create",
    "reserve",
    "sync",
    "delete",
    "sync_directory",
    "move",
    "discard",
)


@dataclass
class Fault:
    """The next operation of this kind on a path that contains `where` fails with `error`."""

    operation: str
    error: OSError
    where: str


class SimulatedDisk:
    """Files by path. If `capacity_bytes` is None, the disk never fills."""

    def __init__(self, name: str, seed: int, loop: SimulatedLoop, trace: Trace) -> None:
        self.name = name
        self.loop = loop
        self.capacity_bytes: int | None = None
        self.sync_us = SYNC_US
        self.read_us = READ_US
        self.share_kept: float | None = None
        """The share of writes on their way that survives a power cut. None means that it is drawn each time."""
        self.entries: dict[str, Inode] = {}  # as processes see them
        self._durable: dict[str, Inode] = {}  # names that a power cut leaves
        self.open_files: dict[SimulatedSegmentFile, None] = {}
        """Open files of the living process, in the order in which they were opened."""
        self._holder: Process | None = None
        self._faults: list[Fault] = []
        self.failures: Counter[str] = Counter()
        """Operation -> how many of the faults set for it have struck."""
        self.wipes = 0
        """How many wipes there were."""
        self._unreadable_until_us: dict[str, int] = {}
        self._stalled_until_us = 0
        self._small_files_busy_until_us = 0
        self._random = random.Random(f"{seed}/disk/{name}")
        self._page_cache = f"{seed}/page cache/{name}"
        self._trace = trace

    # -- faults

    def fail_next(self, operation: str, error: OSError, *, where: str = "", times: int = 1) -> None:
        """The next `times` operations (one of OPERATIONS) on paths that contain `where` fail with `error`."""
        assert operation in OPERATIONS, f"{operation} is none of {OPERATIONS}"
        self._faults += [Fault(operation, error, where)] * times

    def unreadable(self, path: str, ms: int) -> None:
        """In the next `ms`, reads from this file's sectors get EIO. Bytes in memory stay readable."""
        self._unreadable_until_us[path] = self.loop.now_us + ms * 1000

    def mend(self) -> None:
        """Cancel faults that have not struck yet."""
        self._faults.clear()

    def readable(self) -> None:
        """All files are readable again."""
        self._unreadable_until_us.clear()

    def slow_down(self, min_ms: float, max_ms: float) -> None:
        """From now on every sync and every replace takes this long."""
        self.sync_us = (int(min_ms * 1000), int(max_ms * 1000))

    @property
    def stalled(self) -> bool:
        return self.loop.now_us < self._stalled_until_us

    @property
    def is_well(self) -> bool:
        """Whether the disk neither hangs nor has a capacity, and no fault waits to strike. For checkers."""
        unreadable = any(self.loop.now_us < until_us for until_us in self._unreadable_until_us.values())
        return not self.stalled and self.capacity_bytes is None and not self._faults and not unreadable

    def stall(self, ms: int) -> None:
        """No operation that starts from now on ends before `ms` have passed."""
        self._stalled_until_us = self.loop.now_us + ms * 1000

    def wipe(self, prefix: str = "") -> None:
        """Delete files whose path starts with `prefix`, durably, without a process."""
        self.wipes += 1
        self.drop(prefix)

    def drop(self, prefix: str) -> None:
        """Delete files as a process does."""
        for path in [path for path in (*self.entries, *self._durable) if path.startswith(prefix)]:
            self.entries.pop(path, None)
            self._durable.pop(path, None)

    def move(self, name: str, to: str) -> bool:
        """Rename file or folder `name` durably to `to`, with its durable part. Returns whether it existed."""
        found = False
        for held in (self.entries, self._durable):
            for path in [path for path in held if path == name or path.startswith(f"{name}/")]:
                held[to + path[len(name) :]] = held.pop(path)
                found = True
        return found

    def put(self, path: str, data: bytes) -> None:
        """Write a small file durably, as an operator."""
        self.entries[path] = self._durable[path] = Inode.durable(data)

    def flip_bit(self, path: str, offset: int, bit: int = 0) -> None:
        """Flip one bit of a file, in memory and on the disk, as a decaying disk does."""
        self.entries[path].flip_bit(offset, bit)

    def content(self, path: str) -> bytes | None:
        """The content that a process would read now; for checkers."""
        inode = self.entries.get(path)
        return None if inode is None else bytes(inode.data)

    def durably_holds(self, folder: str, content: bytes) -> bool:
        """Whether every power cut would leave these bytes in a file below `folder`; for checkers."""
        inodes = [inode for path, inode in self._durable.items() if path.startswith(folder)]
        return any(inode.durably_holds(content) for inode in reversed(inodes))

    def durable_part(self, path: str, start: int, end: int) -> bytes:
        """The bytes of [start, end) of a file that every power cut leaves. Empty if there is no file. For checkers."""
        inode = self._durable.get(path)
        return b"" if inode is None else inode.durable_part(start, end)

    def open_names(self) -> list[tuple[str, bool]]:
        """The path of each file that a process has open, and whether the file still exists there; for checkers."""
        return [(file.path, self.entries.get(file.path) is file.inode) for file in self.open_files]

    def is_durable(self, path: str) -> bool:
        """Whether the name would survive every power cut, with the content that processes see under it. For checkers."""
        return path in self.entries and self._durable.get(path) is self.entries[path]

    # -- crashes

    def process_died(self, process: Process, *, power_cut: bool) -> None:
        """Prepare the disk for the next process. Everything is there or, after a power cut, only durable data."""
        if self._holder is process:
            self._holder = None
        self.open_files.clear()
        if power_cut:
            self._lose_power()
        else:
            for inode in self.entries.values():
                inode.survive_kill()
        self._small_files_busy_until_us = 0

    def _lose_power(self) -> None:
        share = self._random.choice((0.0, 0.5, 1.0, self._random.random()))
        if self.share_kept is not None:
            share = self.share_kept
        chance = self._random

        def keeps() -> bool:
            return chance.random() < share

        left: dict[str, Inode] = {}
        for path in sorted({**self.entries, **self._durable}):
            seen, durable = self.entries.get(path), self._durable.get(path)
            inode = durable if seen is durable or not keeps() else seen
            if inode is not None:
                left[path] = inode
        for inode in left.values():
            inode.survive_power_cut(keeps, chance)
        self.entries = left
        self._durable = dict(left)

    # -- the store lock

    def lock(self, process: Process) -> None:
        if self._holder is not None and self._holder.alive:
            assert self._holder is not process, f"{process.name} already holds its store"
            raise StoreLocked(f"{self.name}/lock")
        self._holder = process

    def unlock(self, process: Process) -> None:
        if self._holder is process:
            self._holder = None

    # -- operations

    def check(self, operation: str, path: str) -> None:
        """Raise the fault that is set for this operation, if one is."""
        for fault in self._faults:
            if fault.operation == operation and fault.where in path:
                self._faults.remove(fault)
                self.failures[operation] += 1
                self._trace.event(self.loop.now_us, f"fail {operation}", f"{self.name}/{path}")
                raise OSError(fault.error.errno, fault.error.strerror, f"{self.name}/{path}")
        if operation == "read" and self.loop.now_us < self._unreadable_until_us.get(path, 0):
            self.failures[operation] += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), f"{self.name}/{path}")

    def used_bytes(self) -> int:
        return sum(held.allocated_end for held in self.entries.values())

    def free_bytes(self, used_bytes: int) -> int:
        return PLENTY_BYTES if self.capacity_bytes is None else max(self.capacity_bytes - used_bytes, 0)

    def allocate(self, inode: Inode, end: int, path: str) -> None:
        """Allocate blocks for [0, end) of a file. Raises OSError (ENOSPC) if the disk has no room."""
        more = end - inode.allocated_end
        if more > 0:
            if self.capacity_bytes is not None and self.used_bytes() + more > self.capacity_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{self.name}/{path}")
            inode.allocated_end = end

    def make_durable(self, path: str, inode: Inode | None) -> None:
        """Make the directory entry of `path` durable as processes see it, if it still belongs to the caller's file."""
        if self.entries.get(path) is inode:
            if inode is None:
                self._durable.pop(path, None)
            else:
                self._durable[path] = inode

    def make_folder_durable(self, prefix: str) -> None:
        for path in {**self.entries, **self._durable}:
            if path.startswith(prefix) and "/" not in path[len(prefix) :]:
                self.make_durable(path, self.entries.get(path))

    def now_and(self, range_us: tuple[int, int], not_before_us: int = 0) -> int:
        """When an operation that takes this long ends, if it starts now or after an earlier one."""
        low, high = range_us
        took_us = low + int(self._random.random() * (high - low))
        return max(max(self.loop.now_us, not_before_us) + took_us, self._stalled_until_us)

    def finish(
        self, at_us: int, process: Process, step: Callable[[], T], kind: str, path: str, size: int = 0
    ) -> asyncio.Future[T]:
        """Do `step` at that time unless the process has died. The future gets the outcome."""
        future: asyncio.Future[T] = self.loop.create_future()
        what = (kind, f"{self.name}/{path}", size)
        self.loop.call_at_us(at_us, self._finish, future, step, what, context=process.context)
        return future

    def _finish(
        self, future: asyncio.Future[Any], step: Callable[[], Any], what: tuple[str, str, int]
    ) -> None:
        self._trace.event(self.loop.now_us, *what)
        try:
            result = step()
        except OSError as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)

    def caches(self, path: str) -> bool:
        """Whether the page cache has this file. It always has the newest files of a folder, and older files by chance."""
        folder, _, name = path.rpartition("/")
        others = (other.rpartition("/") for other in self.entries)
        if sum(other > name for in_folder, _, other in others if in_folder == folder) < NEWEST_FILES:
            return True
        chance = random.Random(f"{self._page_cache}/{path}/{self.loop.now_us // CACHED_US}")
        return chance.random() < CACHED_SHARE

    def small_file_turn(self, range_us: tuple[int, int]) -> int:
        """When the next operation on small files will be done. These operations run one after the other, in the order of the
        calls."""
        self._small_files_busy_until_us = self.now_and(range_us, self._small_files_busy_until_us)
        return self._small_files_busy_until_us


class SimulatedStoreLock:
    """The lock of the disk's store, as one process uses it."""

    def __init__(self, disk: SimulatedDisk, process: Process) -> None:
        self._disk = disk
        self._process = process

    def acquire(self) -> None:
        self._disk.lock(self._process)

    def release(self) -> None:
        self._disk.unlock(self._process)


class SimulatedSmallFiles:
    """SmallFiles on a simulated disk."""

    def __init__(self, disk: SimulatedDisk, process: Process) -> None:
        self._disk = disk
        self._process = process

    async def read(self, name: str) -> bytes | None:
        def step() -> bytes | None:
            self._disk.check("read", name)
            inode = self._disk.entries.get(name)
            self._disk.make_durable(name, inode)
            if inode is not None:
                inode.persist_all()
            return self._disk.content(name)

        check_name(name)
        return await self._turn(self._disk.read_us, step, "read", name)

    async def replace(self, name: str, data: bytes | bytearray) -> None:
        check_name(name)
        content = bytes(data)
        inode = Inode.durable(content)

        def rename() -> None:
            self._disk.check("replace", name)
            self._disk.allocate(inode, whole_pages(content), name)
            self._disk.entries[name] = inode

        renamed = self._turn(self._disk.sync_us, rename, "rename", name, len(data))
        synced = self._turn(
            self._disk.sync_us, lambda: self._disk.make_durable(name, inode), "replaced", name
        )
        await renamed
        await synced

    async def overwrite(self, name: str, data: bytes) -> None:
        def write() -> None:
            self._disk.check("overwrite", name)
            inode = self._disk.entries.get(name)
            if inode is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            self._disk.allocate(inode, whole_pages(data), name)
            inode.overwrite(data)

        def sync() -> None:
            if (inode := self._disk.entries.get(name)) is not None:
                inode.persist_all()

        check_name(name)
        written = self._turn(self._disk.read_us, write, "write", name, len(data))
        synced = self._turn(self._disk.sync_us, sync, "overwritten", name)
        await written
        await synced

    async def append(self, name: str, data: bytes) -> None:
        check_name(name)
        inode: Inode | None = None

        def write() -> None:
            nonlocal inode
            self._disk.check("append", name)
            inode = self._disk.entries.get(name) or Inode.durable(b"")
            self._disk.allocate(inode, whole_pages(bytes(inode.data) + data), name)
            self._disk.entries[name] = inode
            inode.append(data)

        def sync() -> None:
            if inode is not None:
                inode.persist_all()
                self._disk.make_durable(name, inode)

        written = self._turn(self._disk.read_us, write, "append", name, len(data))
        synced = self._turn(self._disk.sync_us, sync, "appended", name)
        await written
        await synced

    async def rename(self, name: str, to: str) -> None:
        def move() -> None:
            self._disk.check("rename", name)
            inode = self._disk.entries.pop(name, None)
            if inode is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            self._disk.entries[to] = inode
            self._disk.make_durable(to, inode)
            self._disk.make_durable(name, None)

        check_name(name)
        await self._turn(self._disk.sync_us, move, "move", check_name(to))

    async def remove(self, name: str) -> None:
        def unlink() -> None:
            self._disk.check("remove", name)
            self._disk.entries.pop(name, None)

        check_name(name)
        unlinked = self._turn(self._disk.read_us, unlink, "unlink", name)
        synced = self._turn(self._disk.sync_us, lambda: self._disk.make_durable(name, None), "removed", name)
        await unlinked
        await synced

    async def move(self, name: str, folder: str) -> bool:
        check_name(name)
        to = f"{check_name(folder)}/{name}"

        def step() -> bool:
            self._disk.check("move", name)
            return self._disk.move(name, to)

        return await self._turn(self._disk.sync_us, step, "set aside", name)

    async def immovable(self, names: Sequence[str]) -> list[str]:
        return []

    async def discard(self, folder: str) -> None:
        def step() -> None:
            self._disk.check("discard", folder)
            self._disk.drop(f"{folder}/")

        check_name(folder)
        await self._turn(self._disk.sync_us, step, "discard", folder)

    async def names(self, under: str) -> list[str]:
        prefix = check_name(under) + "/" if under else ""

        def step() -> list[str]:
            return sorted(path for path in self._disk.entries if path.startswith(prefix))

        return await self._turn(self._disk.read_us, step, "names", under)

    def _turn(
        self, range_us: tuple[int, int], step: Callable[[], T], kind: str, name: str, size: int = 0
    ) -> asyncio.Future[T]:
        return self._disk.finish(self._disk.small_file_turn(range_us), self._process, step, kind, name, size)


def whole_pages(data: bytes) -> int:
    """The size of the blocks that a small file takes."""
    return -(-len(data) // PAGE_BYTES) * PAGE_BYTES


class SimulatedSegmentFile:
    """SegmentFile whose mapping is a bytearray."""

    def __init__(self, disk: SimulatedDisk, process: Process, path: str, inode: Inode) -> None:
        self.name = path.rsplit("/", 1)[-1]
        self.size_bytes = len(inode.data)
        self.path = path
        self.inode = inode
        self._disk = disk
        self._process = process
        self._sync_error: OSError | None = None
        disk.open_files[self] = None
        self._view = memoryview(inode.data)

    def view(self) -> memoryview:
        return self._view

    def reserve(self, end: int, start: int = 0) -> None:
        assert 0 <= start <= end <= self.size_bytes, f"{self.path}: reserve({end}, {start})"
        self._disk.check("reserve", self.path)
        self._disk.allocate(self.inode, end, self.path)

    async def reserve_ahead(self, end: int, start: int = 0) -> None:
        at_us = self._disk.now_and(RESERVE_US)
        await self._disk.finish(
            at_us, self._process, lambda: self.reserve(end, start), "reserve", self.path, end - start
        )

    async def sync(self, start: int, end: int) -> None:
        assert 0 <= start <= end <= self.size_bytes, f"{self.path}: sync({start}, {end})"
        inode = self.inode
        first, last = inode.pages(start, end)
        content = bytes(self._view[first:last])

        def step() -> None:
            try:
                self._disk.check("sync", self.path)
            except OSError as error:
                self._sync_error = error
                inode.drop(first, content)
                raise
            inode.persist(first, content)
            self._disk.make_durable(self.path, inode)

        if self._sync_error is None:
            at_us = self._disk.now_and(self._disk.sync_us)
            await self._disk.finish(at_us, self._process, step, "sync", self.path, last - first)
        if self._sync_error is not None:
            raise OSError(self._sync_error.errno, self._sync_error.strerror, self.path)

    def soil(self, start: int, end: int) -> None:
        assert 0 <= start <= end <= self.size_bytes, f"{self.path}: soil({start}, {end})"
        self.inode.soil(start, end)

    async def read_cold(self, start: int, end: int) -> bytes:
        assert 0 <= start <= end <= self.size_bytes, f"{self.path}: read_cold({start}, {end})"
        inode = self.inode

        def step() -> bytes:
            self._disk.check("read", self.path)
            return bytes(inode.data[start:end])

        at_us = self._disk.now_and(self._disk.read_us)
        return await self._disk.finish(at_us, self._process, step, "read", self.path, end - start)

    async def examine(self, start: int, end: int, use: Callable[[bytes], T]) -> T:
        return use(await self.read_cold(start, end))

    def read_now(self, start: int, end: int) -> bytes:
        assert 0 <= start <= end <= self.size_bytes, f"{self.path}: read_now({start}, {end})"
        self._disk.check("read", self.path)
        return bytes(self.inode.data[start:end])

    def is_cached(self, start: int, end: int) -> bool:
        assert 0 <= start <= end <= self.size_bytes, f"{self.path}: is_cached({start}, {end})"
        return self._disk.caches(self.path)

    def written(self, start: int, end: int) -> list[tuple[int, int]]:
        assert 0 <= start <= end <= self.size_bytes, f"{self.path}: written({start}, {end})"
        return self.inode.written(start, end)

    def close(self) -> None:
        self._view = memoryview(b"")
        self._disk.open_files.pop(self, None)

    async def release(self) -> None:
        self.close()


class SimulatedDirectory:
    """SegmentDirectory below `prefix` ('' or 'folder/.../')."""

    open_max = 3  # few, so that files are often opened again
    synced_alone_max = 6

    def __init__(self, disk: SimulatedDisk, process: Process, prefix: str = "") -> None:
        self._disk = disk
        self._process = process
        self._prefix = prefix

    def names(self) -> list[tuple[str, int]]:
        below = self._below()
        return sorted((name, len(inode.data)) for name, inode in below if "/" not in name)

    def disk_space(self) -> DiskSpace:
        used = self._disk.used_bytes()
        return DiskSpace(used, self._disk.free_bytes(used))

    def subdirectories(self) -> list[str]:
        return sorted({name.split("/", 1)[0] for name, _ in self._below() if "/" in name})

    def open(self, name: str) -> SimulatedSegmentFile:
        path = self._prefix + check_component(name)
        inode = self._disk.entries.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return SimulatedSegmentFile(self._disk, self._process, path, inode)

    def sole_file(self) -> SoleFile | None:
        below = self._below()
        if len(below) != 1 or "/" in below[0][0]:
            return None
        ((name, inode),) = below
        self._disk.check("read", self._prefix + name)
        written = inode.written(PAGE_BYTES, len(inode.data))
        end = written[-1][1] if written else PAGE_BYTES
        return SoleFile(name, len(inode.data), bytes(inode.data[:end]) if end <= SOLE_HEAD_MAX else None)

    def create(self, name: str, size_bytes: int, *, reserve: int | None = None) -> SimulatedSegmentFile:
        path = self._prefix + check_component(name)
        if path in self._disk.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._disk.check("create", path)
        inode = Inode(size_bytes)
        if reserve != 0:
            self._disk.check("reserve", path)
            self._disk.allocate(inode, size_bytes if reserve is None else reserve, path)
        self._disk.entries[path] = inode
        return SimulatedSegmentFile(self._disk, self._process, path, inode)

    async def delete(self, name: str) -> None:
        path = self._prefix + check_component(name)
        self._disk.check("delete", path)
        if self._disk.entries.pop(path, None) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        at_us = self._disk.now_and(self._disk.sync_us)
        await self._disk.finish(
            at_us, self._process, lambda: self._disk.make_durable(path, None), "delete", path
        )

    def subdirectory(self, name: str) -> SimulatedDirectory:
        return SimulatedDirectory(self._disk, self._process, f"{self._prefix}{check_component(name)}/")

    async def sync_directory(self) -> None:
        def step() -> None:
            self._disk.check("sync_directory", self._prefix)
            self._disk.make_folder_durable(self._prefix)

        at_us = self._disk.now_and(self._disk.sync_us)
        await self._disk.finish(at_us, self._process, step, "sync directory", self._prefix)

    async def sync_below(self) -> None:
        held = [
            (path, inode, bytes(inode.data))
            for path, inode in self._disk.entries.items()
            if path.startswith(self._prefix)
        ]

        def step() -> None:
            try:
                self._disk.check("sync", self._prefix)
            except OSError:
                for _, inode, content in held:
                    inode.drop(0, content)
                raise
            for path, inode, content in held:
                inode.persist(0, content)
                self._disk.make_durable(path, inode)

        at_us = self._disk.now_and(self._disk.sync_us)
        size = sum(len(content) for _, _, content in held)
        await self._disk.finish(at_us, self._process, step, "sync below", self._prefix, size)

    def _below(self) -> list[tuple[str, Inode]]:
        length = len(self._prefix)
        return [
            (path[length:], inode)
            for path, inode in self._disk.entries.items()
            if path.startswith(self._prefix)
        ]
