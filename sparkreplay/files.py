"""Where a store's bytes are read from: a local folder, or any file system that pyarrow.fs knows. Nothing is ever written.

Invariant: a name below the root is taken as it is: links are told apart, never followed."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Entry:
    """One member of a folder. `size_bytes` is 0 for what is no plain file."""

    name: str
    size_bytes: int
    is_folder: bool = False
    is_link: bool = False


class OpenFile(Protocol):
    """One file, held open: what is deleted meanwhile can still be read where the file system allows it."""

    def read_into(self, view: memoryview, at: int) -> int:
        """Fills `view` from byte `at` on; returns how many bytes there were, less only at the file's end."""

    def close(self) -> None: ...


class Files(Protocol):
    """A store's root. Small enough to be pickled to workers, which open files of it on their own.

    Names are relative POSIX paths. Every method raises FileNotFoundError for what is not there, OSError for the rest."""

    @property
    def root(self) -> str: ...

    def shown(self, name: str) -> str:
        """The name as errors show it."""

    def entries(self, folder: str) -> list[Entry]:
        """Sorted by name."""

    def read(self, name: str) -> bytes:
        """A small file, whole."""

    def open(self, name: str) -> OpenFile: ...


@dataclass(frozen=True)
class LocalFiles:
    """A folder of this machine."""

    root: str

    def shown(self, name: str) -> str:
        return os.path.join(self.root, name)

    def entries(self, folder: str) -> list[Entry]:
        with os.scandir(self.shown(folder)) as found:
            return sorted((entry_of(entry) for entry in found), key=lambda entry: entry.name)

    def read(self, name: str) -> bytes:
        with open(self.shown(name), "rb") as file:
            return file.read()

    def open(self, name: str) -> OpenFile:
        return LocalFile(self.shown(name))


def entry_of(entry: os.DirEntry[str]) -> Entry:
    status = entry.stat(follow_symlinks=False)
    plain = stat.S_ISREG(status.st_mode)
    return Entry(
        entry.name,
        status.st_size if plain else 0,
        is_folder=stat.S_ISDIR(status.st_mode),
        is_link=stat.S_ISLNK(status.st_mode),
    )


class LocalFile:
    """Reads go to the caller's own buffer; the kernel is told to read ahead."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def read_into(self, view: memoryview, at: int) -> int:
        held = 0
        while held < len(view):
            got = os.preadv(self.descriptor, [view[held:]], at + held)
            if got == 0:
                break
            held += got
        return held

    def close(self) -> None:
        os.close(self.descriptor)
