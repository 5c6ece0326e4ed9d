"""Folders whose entries survive a power cut.

Invariant: when one of the functions returns, the entry that it made or changed is on disk. A `FolderTree` makes folders without
waiting for the disk; code that puts a file into one syncs it, and all above it, before anything relies on the file."""

from __future__ import annotations

import os
from pathlib import Path


def make_folders(folder: Path) -> None:
    """Create `folder` and missing folders above it."""
    missing: list[Path] = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """fsync of a folder: creations, renames and deletions in it are durable on return."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FolderTree:
    """The folders below `root`. Folders are made in one thread; any thread may sync them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: dict[Path, int] = {}  # by folder: how many folders this process made directly below it
        self._synced: dict[Path, int] = {}  # the same, as of its last sync

    def make(self, folder: Path) -> None:
        """Create `folder`, which is the root or below it, and missing folders above it."""
        if folder.is_dir():
            return
        if folder == self._root:
            make_folders(folder)
            return
        self.make(folder.parent)
        folder.mkdir(exist_ok=True)
        self._made[folder.parent] = self._made.get(folder.parent, 0) + 1

    def sync(self, folder: Path) -> None:
        """Make the entries of `folder`, and those that lead to it from the root, durable."""
        sync_folder(folder)
        while folder != self._root:
            folder = folder.parent
            made = self._made.get(folder, 0)  # before the sync: a folder made meanwhile needs another one
            if self._synced.get(folder) != made:
                sync_folder(folder)
                self._synced[folder] = made
