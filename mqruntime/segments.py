"""Fixed-size files that are written through a mapping: commit log, consume queues, index units.

Invariant: a file under its final name has its full size from the first moment; a byte that `sync` covered is on disk; after a
failed sync every later sync of that file fails too, because the kernel forgets which pages it dropped. Reserved bytes have
disk blocks, so writing them through the view cannot end in SIGBUS.

Of the operations that wait for the disk only `create`, `reserve` and `read_now` run in the event loop's thread. Syncs, cold
reads and the reservation of later blocks run in other threads, and around the mapping: page faults and msync hold the
interpreter's lock. Without fallocate, blocks are made by writing, so no code may write through the view where blocks are
being made."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import mmap
import os
import re
import resource
import stat
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from mqruntime.folders import FolderTree, sync_folder
from mqruntime.pagecache import address_of, in_page_cache

T = TypeVar("T")

UNFINISHED_SUFFIX = (
    ".new"  # suffix of a file that `create` has not finished; never listed, overwritten by the next create
)
COPY_STEP_BYTES = 1 << 20
VIEWED_RETRY_S = 1.0
RESERVE_STEP_BYTES = 4 << 20
"""Bytes reserved at a time in a thread. The loop waits for one such step at most: some ms where there is no fallocate."""
OPEN_MAX = 4_000
SYNCED_ALONE_MAX = 64
SYNCFS_REPORTS = 5, 8
"""From this version of Linux on syncfs reports failed writes."""
SHARE_OF_DESCRIPTORS = 2 * 4
"""A mapped file takes two descriptors; most of the process' limit is left to connections and logs."""
SOLE_HEAD_MAX = 64 << 10
ZEROS = bytes(SOLE_HEAD_MAX)
posix_fadvise = getattr(os, "posix_fadvise", None)
DISK_THREADS = 4  # one sync of the log, one of the queues, and cold reads


class DiskSpace(NamedTuple):
    """Of a file system, as `df` counts it: blocks reserved for root count as neither."""

    used_bytes: int
    free_bytes: int

    @property
    def used(self) -> float:
        """The share in use, 0 to 1."""
        return self.used_bytes / (self.used_bytes + self.free_bytes) if self.used_bytes else 0.0


class SoleFile(NamedTuple):
    """`head` are the file's first bytes, at least a page, followed only by zeros and by holes according to the file system;
    None if they are more than SOLE_HEAD_MAX, or holes are not reported. Some file systems report unwritten dirty pages as a
    hole."""

    name: str
    size_bytes: int
    head: bytes | None


class SegmentFile(Protocol):
    """One open file of a fixed size."""

    name: str
    size_bytes: int

    def view(self) -> memoryview:
        """The whole file, writable, of a shared mapping; slices of it may outlive `close`."""
        ...

    def reserve(self, end: int, start: int = 0) -> None:
        """Reserve disk blocks for [start, end). Raises OSError (ENOSPC)."""
        ...

    async def reserve_ahead(self, end: int, start: int = 0) -> None:
        """`reserve` in a thread, in steps. Meanwhile, bytes of [start, end) that had no reservation must not be written
        through the view. Ends silently when the file is closed."""
        ...

    async def sync(self, start: int, end: int) -> None:
        """Make the view's bytes [start, end) as of the call, and the file's own directory entry, durable. Raises OSError when
        the disk fails, then and at every later sync."""
        ...

    def soil(self, start: int, end: int) -> None:
        """Make the next sync write all pages of [start, end), also those that the kernel treats as written because a sync of
        them failed. They must have disk blocks: see `written`."""
        ...

    async def read_cold(self, start: int, end: int) -> bytes:
        """Bytes [start, end) read outside the mapping. Raises OSError when the disk fails."""
        ...

    async def examine(self, start: int, end: int, use: Callable[[bytes], T]) -> T:
        """Apply `use` to the same bytes in the thread that read them. Raises OSError."""
        ...

    def read_now(self, start: int, end: int) -> bytes:
        """`read_cold` in the caller's thread, for few bytes and for starts, when nothing else waits."""
        ...

    def is_cached(self, start: int, end: int) -> bool:
        """Whether reading [start, end) waits for no disk; False if unknown."""
        ...

    def written(self, start: int, end: int) -> list[tuple[int, int]]:
        """Ranges, in order, that hold all bytes of [start, end) ever written: the rest reads as zeros. Raises OSError."""
        ...

    def close(self) -> None:
        """Close the file; the mapping ends with the last view of it."""
        ...

    async def release(self) -> None:
        """Close a deleted file; returns once no view of it is left and its blocks have been freed, outside the event loop."""
        ...


class SegmentDirectory(Protocol):
    """One folder of segment files."""

    open_max: int
    """How many of the small files below it may be open at once, so that descriptors and mappings are left for other uses."""
    synced_alone_max: int
    """Up to this many files are synced one by one; more are synced with `sync_below`."""

    def names(self) -> list[tuple[str, int]]:
        """(name, size) of each file, sorted by name; [] when the folder is absent. A link counts as its file. Raises OSError
        for a dangling link: a file on a disk that is not mounted must not be treated as absent."""
        ...

    def open(self, name: str) -> SegmentFile:
        """Open an existing file. Raises FileNotFoundError."""
        ...

    def sole_file(self) -> SoleFile | None:
        """The folder's only file, for a fraction of the cost of opening it; None if the folder holds no file or more than
        that. Runs in the caller's thread. Raises OSError."""
        ...

    def create(self, name: str, size_bytes: int, *, reserve: int | None = None) -> SegmentFile:
        """A new zero-filled file, sparse after its first `reserve` bytes; its directory entry is durable at its next sync.
        Raises OSError (ENOSPC), leaving nothing behind; FileExistsError when the name is taken."""
        ...

    async def delete(self, name: str) -> None:
        """Delete durably. Views of the file stay readable. Raises FileNotFoundError when absent."""
        ...

    def subdirectory(self, name: str) -> SegmentDirectory:
        """A folder below this one; created when first written to."""
        ...

    def subdirectories(self) -> list[str]:
        """Sorted names of the folders directly below this one."""
        ...

    async def sync_directory(self) -> None:
        """Make creations and deletions in this folder durable."""
        ...

    async def sync_below(self) -> None:
        """Make the view bytes of all files below as of the call, and these files' directory entries, durable: for many files
        at once. Raises OSError."""
        ...

    def disk_space(self) -> DiskSpace:
        """Of the folder's file system. Raises OSError."""
        ...


class BadSegmentName(ValueError):
    """A file or folder name that is not one plain path component."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is not a plain file name")
        self.name = name


def check_component(name: str) -> str:
    """`name` itself if it is one plain path component. Raises BadSegmentName."""
    if name in ("", ".", "..") or "/" in name or "\0" in name or name.endswith(UNFINISHED_SUFFIX):
        raise BadSegmentName(name)
    return name


class RealSegmentFile:
    """A file, its mapping and the threads that sync and read it."""

    def __init__(
        self, path: Path, descriptor: int, size_bytes: int, threads: Executor, folders: FolderTree
    ) -> None:
        self.name = path.name
        self.size_bytes = size_bytes
        self._path = path
        self._descriptor = descriptor
        self._threads = threads
        self._folders = folders
        self._reserved = 0, 0  # [from, to) has blocks
        self._reserving = threading.Lock()
        self._entry_synced = False
        self._sync_error: OSError | None = None
        self._in_threads = 0
        self._closing = False
        # An empty file cannot be mapped. The mapping is never closed by hand: it ends with its last view.
        self._mapping = mmap.mmap(descriptor, size_bytes) if size_bytes else None
        self._address = None if self._mapping is None else address_of(self._mapping)
        self._view = memoryview(bytearray() if self._mapping is None else self._mapping)

    def view(self) -> memoryview:
        return self._view

    def reserve(self, end: int, start: int = 0) -> None:
        assert 0 <= start <= end <= self.size_bytes, f"{self._path}: reserve({end}, {start})"
        with self._reserving:
            low, high = self._reserved
            if not low <= start <= high and not start < low <= end:  # not adjacent to the reserved range
                low, high = start, start
            if start < low:
                allocate_blocks(self._descriptor, self._path, start, low)
            if end > high:
                allocate_blocks(self._descriptor, self._path, high, end)
            self._reserved = min(start, low), max(end, high)

    async def reserve_ahead(self, end: int, start: int = 0) -> None:
        for at in range(start, end, RESERVE_STEP_BYTES):
            if self._closing:
                return
            await self._in_thread(partial(self.reserve, min(at + RESERVE_STEP_BYTES, end), at))

    async def sync(self, start: int, end: int) -> None:
        assert 0 <= start <= end <= self.size_bytes, f"{self._path}: sync({start}, {end})"
        if self._sync_error is None:
            await self._in_thread(self._sync)
        if self._sync_error is not None:
            raise OSError(self._sync_error.errno, self._sync_error.strerror, str(self._path))

    def soil(self, start: int, end: int) -> None:
        assert 0 <= start <= end <= self.size_bytes, f"{self._path}: soil({start}, {end})"
        one_a_page = slice(start - start % mmap.PAGESIZE, end, mmap.PAGESIZE)
        self._view[one_a_page] = bytes(self._view[one_a_page])

    async def read_cold(self, start: int, end: int) -> bytes:
        assert 0 <= start <= end <= self.size_bytes, f"{self._path}: read_cold({start}, {end})"
        return await self._in_thread(lambda: read_range(self._descriptor, self._path, start, end))

    async def examine(self, start: int, end: int, use: Callable[[bytes], T]) -> T:
        assert 0 <= start <= end <= self.size_bytes, f"{self._path}: examine({start}, {end})"
        return await self._in_thread(lambda: use(read_range(self._descriptor, self._path, start, end)))

    def read_now(self, start: int, end: int) -> bytes:
        assert 0 <= start <= end <= self.size_bytes, f"{self._path}: read_now({start}, {end})"
        return read_range(self._descriptor, self._path, start, end)

    def is_cached(self, start: int, end: int) -> bool:
        assert 0 <= start <= end <= self.size_bytes, f"{self._path}: is_cached({start}, {end})"
        return self._address is None or in_page_cache(self._address, start, end)

    def written(self, start: int, end: int) -> list[tuple[int, int]]:
        assert 0 <= start <= end <= self.size_bytes, f"{self._path}: written({start}, {end})"
        return written_ranges(self._descriptor, start, end)

    def close(self) -> None:
        self._closing = True
        self._view = memoryview(b"")
        self._mapping = self._address = None
        self._close_descriptor_when_idle()

    async def release(self) -> None:
        mapping = self._mapping
        self.close()
        loop = asyncio.get_running_loop()
        while mapping is not None:
            try:
                if (
                    self._descriptor < 0
                ):  # the last close of a deleted file waits until all its blocks are free
                    await loop.run_in_executor(self._threads, mapping.close)
                    return
            except BufferError:
                pass
            await asyncio.sleep(VIEWED_RETRY_S)  # a view of it is still in use

    def _sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
            if not self._entry_synced:
                self._folders.sync(self._path.parent)
                self._entry_synced = True
        except OSError as error:
            self._sync_error = error  # kept here, in the thread: the caller may have been cancelled

    async def _in_thread(self, call: Callable[[], T]) -> T:
        assert not self._closing, f"{self._path} is closed"
        self._in_threads += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, call)
        future.add_done_callback(self._left_thread)
        return await asyncio.shield(future)  # cancelling the caller does not stop the thread

    def _left_thread(self, future: asyncio.Future[T]) -> None:
        self._in_threads -= 1
        if not future.cancelled():
            future.exception()  # a cancelled caller does not retrieve it
        self._close_descriptor_when_idle()

    def _close_descriptor_when_idle(self) -> None:
        if self._closing and self._in_threads == 0 and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class RealSegmentDirectory:
    """A folder of the machine's file system; folders below share its threads. There may be a hundred thousand."""

    __slots__ = ("_folders", "_place", "_scratch", "_threads", "open_max", "synced_alone_max")

    def __init__(self, path: Path) -> None:
        self._place = str(path)
        self.open_max = open_max()
        self.synced_alone_max = SYNCED_ALONE_MAX
        self._threads: Executor = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="segments")
        self._folders = FolderTree(path)
        self._scratch = bytearray(SOLE_HEAD_MAX)

    @property
    def _path(self) -> Path:
        return Path(self._place)

    def names(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        for entry in self._entries():
            if not entry.name.endswith(UNFINISHED_SUFFIX) and not entry.is_dir(follow_symlinks=False):
                status = entry.stat()  # OSError for a dangling link
                if stat.S_ISREG(status.st_mode):
                    found.append((entry.name, status.st_size))
        return sorted(found)

    def subdirectories(self) -> list[str]:
        return sorted(entry.name for entry in self._entries() if entry.is_dir(follow_symlinks=False))

    def open(self, name: str) -> RealSegmentFile:
        path = self._path / check_component(name)
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        return self._opened(path, descriptor, os.fstat(descriptor).st_size)

    def sole_file(self) -> SoleFile | None:
        entries = self._entries()
        if len(entries) != 1 or entries[0].name.endswith(UNFINISHED_SUFFIX) or not entries[0].is_file():
            return None
        descriptor = os.open(entries[0].path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return SoleFile(entries[0].name, os.fstat(descriptor).st_size, self._head_of(descriptor))
        finally:
            os.close(descriptor)

    def _head_of(self, descriptor: int) -> bytes | None:
        """See SoleFile. Read-ahead makes a page of holes count as written from then on, so nothing is read ahead."""
        end = written_end(descriptor, SOLE_HEAD_MAX)
        if end is None:
            return None
        if posix_fadvise is not None:
            posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        page = os.pread(descriptor, mmap.PAGESIZE, 0)
        if end == mmap.PAGESIZE:
            return page
        with memoryview(self._scratch) as scratch, scratch[: end - mmap.PAGESIZE] as rest:
            count = os.preadv(descriptor, [rest], mmap.PAGESIZE)
            return page if ZEROS.startswith(rest[:count]) else page + rest[:count]

    def create(self, name: str, size_bytes: int, *, reserve: int | None = None) -> RealSegmentFile:
        path = self._path / check_component(name)
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self._folders.make(self._path)
        unfinished = path.with_name(name + UNFINISHED_SUFFIX)
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(descriptor, size_bytes)
            allocate_blocks(descriptor, path, 0, size_bytes if reserve is None else reserve)
            unfinished.rename(path)
        except OSError:
            os.close(descriptor)
            unfinished.unlink(missing_ok=True)
            raise
        try:
            return self._opened(path, descriptor, size_bytes)
        except OSError as error:  # no room for the mapping in memory or in the kernel's tables
            path.unlink(missing_ok=True)
            error.filename = str(path)
            raise

    async def delete(self, name: str) -> None:
        path = self._path / check_component(name)
        await asyncio.get_running_loop().run_in_executor(self._threads, _delete, path)

    def subdirectory(self, name: str) -> RealSegmentDirectory:
        below = object.__new__(RealSegmentDirectory)
        below._place = f"{self._place}/{check_component(name)}"
        below.open_max, below.synced_alone_max = self.open_max, self.synced_alone_max
        below._threads, below._folders, below._scratch = self._threads, self._folders, self._scratch
        return below

    async def sync_directory(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, self._sync_folder)

    async def sync_below(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, sync_all_below, self._path)

    def disk_space(self) -> DiskSpace:
        path = self._path
        space = os.statvfs(next(folder for folder in (path, *path.parents) if folder.is_dir()))
        used = space.f_blocks - space.f_bfree
        return DiskSpace(used * space.f_frsize, space.f_bavail * space.f_frsize)

    def close(self) -> None:
        """End the threads, of the folders below too, after their queued work."""
        self._threads.shutdown(wait=True)

    def _opened(self, path: Path, descriptor: int, size_bytes: int) -> RealSegmentFile:
        try:
            return RealSegmentFile(path, descriptor, size_bytes, self._threads, self._folders)
        except OSError:
            os.close(descriptor)
            raise

    def _entries(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._place) as entries:
                return list(entries)
        except FileNotFoundError:
            return []

    def _sync_folder(self) -> None:
        if self._path.is_dir():  # an unused folder has nothing to sync
            self._folders.sync(self._path)


def open_max() -> int:
    """See SegmentDirectory."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_MAX if soft == resource.RLIM_INFINITY else min(OPEN_MAX, soft // SHARE_OF_DESCRIPTORS)


def allocate_blocks(descriptor: int, path: Path, start: int, end: int) -> None:
    """Reserve disk blocks for [start, end) of an open file, its content unchanged. Raises OSError (ENOSPC) that names
    `path`."""
    if start == end:
        return
    try:
        os.posix_fallocate(descriptor, start, end - start)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            error.filename = str(path)
            raise
        for offset in range(start, end, COPY_STEP_BYTES):  # no fallocate here: writing is what allocates
            held = os.pread(descriptor, min(COPY_STEP_BYTES, end - offset), offset)
            os.pwrite(descriptor, held, offset)


def read_range(descriptor: int, path: Path, start: int, end: int) -> bytes:
    """Exactly the bytes [start, end). Raises OSError(EIO) when the file is shorter than it was."""
    parts: list[bytes] = []
    while start < end:
        part = os.pread(descriptor, end - start, start)
        if not part:
            raise OSError(errno.EIO, "file ends early", str(path))
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def written_ranges(descriptor: int, start: int, end: int) -> list[tuple[int, int]]:
    """The ranges of [start, end) of an open file that are no holes; pages that were only allocated count as holes if the file
    system reports that."""
    found: list[tuple[int, int]] = []
    at = start
    while at < end:
        try:
            data = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the file's end
                break
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            return [(start, end)]
        if data >= end:
            break
        at = min(os.lseek(descriptor, data, os.SEEK_HOLE), end)
        found.append((data, at))
    return found


def written_end(descriptor: int, limit: int) -> int | None:
    """Where the hole begins that is the rest of an open file, after its first page at the earliest; None above `limit`, or if
    the file system does not report holes."""
    end = mmap.PAGESIZE
    try:
        while end <= limit and os.lseek(descriptor, end, os.SEEK_DATA) < limit:
            end = os.lseek(descriptor, end, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return end
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
    return None


def sync_all_below(folder: Path) -> None:
    """See SegmentDirectory.sync_below. One call for the folder's file system: a sync per file waits for the disk each time,
    even if nothing is to be written. Raises OSError."""
    if not folder.is_dir():
        return
    if syncfs is None:
        for path, _, names in os.walk(folder, topdown=False):
            for name in names:
                _fsync(Path(path, name))
            sync_folder(Path(path))
        sync_folder(folder.parent)
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(descriptor)


def _syncfs() -> Callable[[int], int] | None:
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if sys.platform != "linux" or release is None or (int(release[1]), int(release[2])) < SYNCFS_REPORTS:
        return None
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    return found


syncfs = _syncfs()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _delete(path: Path) -> None:
    path.unlink()
    sync_folder(path.parent)
