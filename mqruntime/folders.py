"""Folders whose entries survive a power cut.

Invariant: when one of these functions returns, the entry that it made or changed is on disk."""

from __future__ import annotations

import os
from pathlib import Path


def make_folders(folder: Path) -> None:
    """Create `folder` and what is missing above it."""
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
