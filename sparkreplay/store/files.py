"""Access to a store's bytes. This module reads a local folder, and remotefiles.py any file system of pyarrow.fs. Nothing is
ever written.

Invariant: a link instead of a file is rejected and never followed. A folder may be a link, because a log on another disk may
be linked into a store. Files that are read whole are small."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from sparkreplay.errors import StoreUnreadable

SMALL_FILE_BYTES_MAX = 4 << 20
"""This is more than an epoch file with as many entries as epochfile.format allows."""
FOLDER_ENTRIES_MAX = 200_000
"""Limit of names in one folder. No disk holds as many segments of 1 GiB."""


@dataclass(frozen=True)
class FolderMember:
    """One member of a folder. `size_bytes` is 0 unless it is a plain file."""

    name: str
    size_bytes: int
    is_folder: bool = False
    is_link: bool = False
    is_file: bool = True


class OpenFile(Protocol):
    """One file, held open. If it is deleted meanwhile, it stays readable if the file system allows that."""

    def read_into(self, view: memoryview, at: int) -> int:
        """Fill `view` from byte `at` on, and return how many bytes were read. These are fewer than requested only at the
        file's end."""

    def close(self) -> None: ...


class Files(Protocol):
    """The files below a store's root folder. The object is small enough to be pickled to workers, which open the files
    themselves.

    Names are relative POSIX paths. Every method raises FileNotFoundError for a file that does not exist, and StoreUnreadable
    for a file that is unreadable for another reason."""

    @property
    def root(self) -> str:
        """The root as given, without secrets."""

    def shown(self, name: str) -> str:
        """The name of a file as errors show it."""

    def entries(self, folder: str) -> list[FolderMember]:
        """The members of a folder, sorted by name."""

    def read(self, name: str) -> bytes:
        """The whole content of a small file, at most SMALL_FILE_BYTES_MAX."""

    def open(self, name: str) -> OpenFile: ...


@contextmanager
def raising_unreadable(path: str) -> Iterator[None]:
    """Turn errors of the operating system or a remote store into an error that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise
    except PermissionError as error:
        raise unreadable(path, error) from None
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: str, error: OSError) -> StoreUnreadable:
    if isinstance(error, PermissionError):
        return StoreUnreadable(
            path, "may not be read by this user; run as the broker's user, or grant it read access"
        )
    why = (error.strerror or str(error)).strip().rstrip(".")
    return StoreUnreadable(path, f"cannot be read: {why}; correct that, or read another replica")


@dataclass(frozen=True)
class LocalFiles:
    """A folder of this machine."""

    root: str

    def shown(self, name: str) -> str:
        return os.path.join(self.root, name)

    def entries(self, folder: str) -> list[FolderMember]:
        path = self.shown(folder)
        with raising_unreadable(path), os.scandir(path) as found:
            members = islice(found, FOLDER_ENTRIES_MAX + 1)
            return in_order(path, [entry for member in members if (entry := entry_of(member)) is not None])

    def read(self, name: str) -> bytes:
        file = LocalFile(self.shown(name))
        try:
            buffer = bytearray(min(file.size_bytes, SMALL_FILE_BYTES_MAX) + 1)
            held = file.read_into(memoryview(buffer), 0)
        finally:
            file.close()
        return small(self.shown(name), bytes(memoryview(buffer)[:held]))

    def open(self, name: str) -> OpenFile:
        return LocalFile(self.shown(name))


def in_order(path: str, entries: list[FolderMember]) -> list[FolderMember]:
    """The entries of a folder by name. Raises StoreUnreadable for more than a store can have."""
    if len(entries) > FOLDER_ENTRIES_MAX:
        raise StoreUnreadable(
            path,
            f"has more than {FOLDER_ENTRIES_MAX} entries; it is no broker's folder, read another replica",
        )
    return sorted(entries, key=lambda entry: entry.name)


def small(path: str, data: bytes) -> bytes:
    """Return `data`. Raises StoreUnreadable if it is larger than a small file may be."""
    if len(data) > SMALL_FILE_BYTES_MAX:
        raise StoreUnreadable(
            path,
            f"is longer than {SMALL_FILE_BYTES_MAX} bytes; it is not a broker's file, read another replica",
        )
    return data


def entry_of(member: os.DirEntry[str]) -> FolderMember | None:
    """The folder's entry as a FolderMember; None if it was deleted since the folder was listed."""
    try:
        status = member.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    plain = stat.S_ISREG(status.st_mode)
    return FolderMember(
        member.name,
        status.st_size if plain else 0,
        is_folder=stat.S_ISDIR(status.st_mode),
        is_link=stat.S_ISLNK(status.st_mode),
        is_file=plain,
    )


class LocalFile:
    """Reads into the caller's buffer, with the kernel's read-ahead. A link or a pipe is rejected and not opened."""

    def __init__(self, path: str) -> None:
        self.path = path
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with raising_unreadable(path):
            if os.path.islink(path):
                raise StoreUnreadable(path, "is a symbolic link; copy the file itself into the store")
            self.descriptor = os.open(path, flags)
        status = os.fstat(self.descriptor)
        self.size_bytes = status.st_size
        if not stat.S_ISREG(status.st_mode):
            os.close(self.descriptor)
            raise StoreUnreadable(path, "is no plain file; name a broker's storePathRootDir")
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def read_into(self, view: memoryview, at: int) -> int:
        held = 0
        try:
            while held < len(view):
                got = os.preadv(self.descriptor, [view[held:]], at + held)
                if got == 0:
                    break
                held += got
        except OSError as error:
            raise unreadable(self.path, error) from error
        return held

    def close(self) -> None:
        os.close(self.descriptor)
