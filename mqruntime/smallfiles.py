"""Small files that are replaced as a whole: epoch file, identity, votes, topic and offset tables.

Invariant: a reader finds the old content or the new one, never a mixture (except after `overwrite`), and an operation's
result is on disk when it returns. Operations of one root run one at a time in call order, so a cancelled replace cannot
overtake a later one.

Each operation is one call in the thread, by aiofiles' `wrap`. Files of aiofiles would switch threads for every open, write
and sync, and a cancelled replace would stop between two of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from aiofiles.base import wrap

from mqruntime.folders import make_folders, sync_folder

TMP_SUFFIX = ".tmp"  # upstream's own suffix for half-written configuration
PRIVATE = ("users.json", "tables.journal.")
"""Beginnings of the names of files that only their owner may read: a broker's users have passwords."""


class SmallFiles(Protocol):
    """Small files under one root; names are relative POSIX paths ('config/topics.json')."""

    async def read(self, name: str) -> bytes | None:
        """The content; None when there is no such file. It is durable, even if a process was killed between its write or
        rename and the sync. Raises OSError when the disk fails."""
        ...

    async def replace(self, name: str, data: bytes | bytearray) -> None:
        """Replace atomically and durably. OSError (ENOSPC, EIO) leaves the old content."""
        ...

    async def overwrite(self, name: str, data: bytes) -> None:
        """Overwrite in place, durably; most full disks have room for that. A crash, or OSError, leaves any mixture of old and
        new, so a reader needs a checksum and another copy. Raises FileNotFoundError."""
        ...

    async def append(self, name: str, data: bytes) -> None:
        """Append to the file, which is made if absent, durably. A crash, or OSError, leaves any part of `data` there, so a
        reader needs a checksum."""
        ...

    async def rename(self, name: str, to: str) -> None:
        """Rename `name` to `to`, in the same folder, atomically and durably; needs no disk space. Raises FileNotFoundError."""
        ...

    async def remove(self, name: str) -> None:
        """Remove durably; an absent file is fine."""
        ...

    async def names(self, under: str) -> list[str]:
        """Sorted names, relative to the root, of the files at any depth below `under` ('': the root)."""
        ...

    async def move(self, name: str, folder: str) -> bool:
        """Move file or folder `name` into `folder` under its own name, atomically and durably, including a move of a process
        that was killed before its sync. False if there is nothing to move. Raises OSError."""
        ...

    async def immovable(self, names: Sequence[str]) -> list[str]:
        """Those of `names` that `move` cannot move: links and mount points."""
        ...

    async def discard(self, folder: str) -> None:
        """Delete `folder` and everything below it, durably; a crash may leave a part. An absent folder is fine."""
        ...


class BadFileName(ValueError):
    """A file name that is empty, absolute, leaves its folder or is reserved for half-written files."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is not a relative POSIX path below the store root")
        self.name = name


def check_name(name: str) -> str:
    """`name` itself if it stays below the root. Raises BadFileName."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts) or name.endswith(TMP_SUFFIX):
        raise BadFileName(name)
    return name


class RealSmallFiles:
    """tmp + fsync + rename + fsync of the folder, in a separate thread."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._thread: Executor = ThreadPoolExecutor(1, thread_name_prefix="small-files")
        self._synced_folders: set[Path] = set()

    async def read(self, name: str) -> bytes | None:
        data: bytes | None = await wrap(self._read)(self._root / check_name(name), executor=self._thread)
        return data

    async def replace(self, name: str, data: bytes | bytearray) -> None:
        await wrap(_replace)(self._root / check_name(name), data, executor=self._thread)

    async def overwrite(self, name: str, data: bytes) -> None:
        await wrap(_overwrite)(self._root / check_name(name), data, executor=self._thread)

    async def append(self, name: str, data: bytes) -> None:
        await wrap(_append)(self._root / check_name(name), data, executor=self._thread)

    async def rename(self, name: str, to: str) -> None:
        old, new = (self._root / check_name(each) for each in (name, to))
        await wrap(_rename)(old, new, executor=self._thread)

    async def remove(self, name: str) -> None:
        await wrap(_remove)(self._root / check_name(name), executor=self._thread)

    async def names(self, under: str) -> list[str]:
        folder = self._root / check_name(under) if under else self._root
        found: list[str] = await wrap(_names)(self._root, folder, executor=self._thread)
        return found

    async def move(self, name: str, folder: str) -> bool:
        old, new = self._root / check_name(name), self._root / check_name(folder)
        moved: bool = await wrap(_move)(old, new, executor=self._thread)
        return moved

    async def immovable(self, names: Sequence[str]) -> list[str]:
        paths = {name: self._root / check_name(name) for name in names}
        return await wrap(_immovable)(paths, executor=self._thread)  # type: ignore[no-any-return]

    async def discard(self, folder: str) -> None:
        await wrap(_discard)(self._root / check_name(folder), executor=self._thread)

    def close(self) -> None:
        """Wait for operations in progress and end the thread."""
        self._thread.shutdown(wait=True)

    def _read(self, path: Path) -> bytes | None:
        """The first read in a folder syncs it: a killed process may have renamed and not yet synced."""
        if path.parent not in self._synced_folders and path.parent.is_dir():
            sync_folder(path.parent)
            self._synced_folders.add(path.parent)
        return _content(path)


def _content(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            os.fsync(file.fileno())  # a process may have been killed while it overwrote the file
            return file.read()
    except FileNotFoundError:
        return None


def _replace(path: Path, data: bytes) -> None:
    make_folders(path.parent)
    tmp = path.with_name(path.name + TMP_SUFFIX)
    try:
        with _opened(tmp, "wb") as file:  # overwrites a file that a crash may have left under this name
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        tmp.replace(path)
    except OSError as error:
        tmp.unlink(missing_ok=True)
        error.filename = str(path)  # a write or a sync names no file
        raise
    sync_folder(path.parent)


def _opened(path: Path, mode: str) -> BinaryIO:
    """Opened for writing; a private file gets its mode before its content."""
    if not path.name.startswith(PRIVATE):
        return cast(BinaryIO, path.open(mode))
    file = open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))  # noqa: SIM115 - the caller's
    os.fchmod(file.fileno(), 0o600)
    return cast(BinaryIO, file)


def _overwrite(path: Path, data: bytes) -> None:
    try:
        with path.open("r+b") as file:
            file.write(data)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = str(path)
        raise


def _append(path: Path, data: bytes) -> None:
    make_folders(path.parent)
    is_new = not path.exists()
    try:
        with _opened(path, "ab") as file:
            file.write(data)
            file.flush()
            os.fdatasync(file.fileno())
    except OSError as error:
        error.filename = str(path)
        raise
    if is_new:
        sync_folder(path.parent)


def _rename(old: Path, new: Path) -> None:
    old.replace(new)
    sync_folder(new.parent)


def _move(old: Path, folder: Path) -> bool:
    make_folders(folder)
    try:
        old.rename(folder / old.name)
        moved = True
    except FileNotFoundError:  # or a killed process renamed it before the rename was durable
        moved = False
    sync_folder(folder)
    sync_folder(old.parent)
    return moved


def _immovable(paths: dict[str, Path]) -> list[str]:
    return [name for name, path in paths.items() if path.is_symlink() or os.path.ismount(path)]


def _discard(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    sync_folder(folder.parent)


def _remove(path: Path) -> None:
    tmp = path.with_name(path.name + TMP_SUFFIX)
    tmp.unlink(missing_ok=True)
    try:
        path.unlink()
    except FileNotFoundError:
        return
    sync_folder(path.parent)


def _names(root: Path, folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(TMP_SUFFIX))
    return sorted(path.relative_to(root).as_posix() for path in files)
