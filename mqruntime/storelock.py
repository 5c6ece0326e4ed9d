"""The lock that keeps two processes out of one store root.

Invariant: while it is held, no other process that follows the rule (a Java broker included) opens the same root, and no other
part of this process does; the operating system drops it when the process ends, however it ends."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from struct import Struct
from typing import Protocol

from mqruntime.diskfull import DISK_FULL

FLOCK = Struct("@hhqqi4x")  # l_type, l_whence, l_start, l_len, l_pid of Linux on 64 bits
CURES = {
    **dict.fromkeys(DISK_FULL, "make room on its disk"),
    errno.EROFS: "mount it writable",
    errno.EIO: "replace the disk, which fails",
    errno.EEXIST: "move away the file that has its name",
    errno.EISDIR: "move away the folder that has the name of its lock file",
}
HELD: set[tuple[int, int, int]] = set()
"""The lock files that this process holds, as process id, device and inode: a process' own lock does not block it, and closing
any other descriptor of the file drops the lock."""
LOCK_FILE = "lock"  # DefaultMessageStore takes a POSIX lock on byte 0 of this file


class StoreLocked(Exception):
    """Another process works in this store root, or another part of this one."""

    def __init__(self, path: Path | str, holder: int = 0) -> None:
        which = "this process" if holder == os.getpid() else "another process"
        who = f"{which} (pid {holder})" if holder else which
        super().__init__(f"{path}: {who} holds this store; stop it, or give this one another store directory")
        self.path = path
        self.holder = holder


class StoreUnusable(Exception):
    """The store root is no folder in which this process can write."""

    def __init__(self, folder: Path, error: OSError) -> None:
        cure = CURES.get(error.errno or 0, "give this user the right to write there")
        super().__init__(
            f"{folder}: cannot be used as store directory ({error.strerror}: {error.filename}); "
            f"name another one, or {cure}"
        )


class StoreLock(Protocol):
    """Exclusive right to one store root. Acquire before reading anything below the root."""

    def acquire(self) -> None:
        """Take the lock at once; taking a held one again is the caller's error. Raises StoreLocked or StoreUnusable."""
        ...

    def release(self) -> None:
        """Release the lock; does nothing if it is not held."""
        ...


class RealStoreLock:
    """`fcntl` record lock on byte 0 of `lock` in the root, the range that upstream's store locks."""

    def __init__(self, root: Path) -> None:
        self._path = root / LOCK_FILE
        self._descriptor: int | None = None
        self._file = 0, 0, 0
        """This lock's entry in HELD."""

    def acquire(self) -> None:
        assert self._descriptor is None, f"{self._path} is already held by this process"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists() and _file(os.stat(self._path)) in HELD:
                raise StoreLocked(self._path, os.getpid())
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreUnusable(self._path.parent, error) from error
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except (BlockingIOError, PermissionError):
            holder = _holder(descriptor)
            os.close(descriptor)
            raise StoreLocked(self._path, holder) from None
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self._file = _file(os.fstat(descriptor))
        HELD.add(self._file)

    def release(self) -> None:
        if self._descriptor is not None:
            HELD.discard(self._file)
            os.close(self._descriptor)  # closing the file drops the lock
            self._descriptor = None


def _file(stat: os.stat_result) -> tuple[int, int, int]:
    return os.getpid(), stat.st_dev, stat.st_ino


def _holder(descriptor: int) -> int:
    """The pid of the lock's holder; 0 if the system does not report it, as in another pid namespace."""
    wanted = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        *_, pid = FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, wanted))
    except OSError:
        return 0
    return max(int(pid), 0)
