"""A small file system in memory, and one in a file for power cuts. Mounting them needs root; else the test is
skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size_bytes: int) -> Iterator[Path]:
    """Makes `place` and mounts a file system of `size_bytes` there."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small file system needs root")
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def made_image(image: Path, size_bytes: int) -> Path:
    """A file with an empty file system."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("a file system in a file needs root and mkfs.ext4")
    with image.open("wb") as file:
        file.truncate(size_bytes)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    return image


@contextmanager
def mounted_image(image: Path, place: Path) -> Iterator[Path]:
    """Mounts the file system in `image` at `place`; for minutes only synced data is written to it."""
    place.mkdir(exist_ok=True)
    mount = ["mount", "-o", "loop,commit=600", str(image), str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine has no loop devices for root")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
