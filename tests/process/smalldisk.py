"""A file system in memory that is soon full, and one in a file, whose power can go; who is not root may not mount them and
skips the test."""

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
    """`place`, made and mounted with room for `size_bytes`."""
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
    """A file that holds an empty file system."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("a file system in a file needs root and mkfs.ext4")
    with image.open("wb") as file:
        file.truncate(size_bytes)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    return image


@contextmanager
def mounted_image(image: Path, place: Path) -> Iterator[Path]:
    """`place`, where the file system in `image` is mounted; nothing is written to it but what is synced, for minutes."""
    place.mkdir(exist_ok=True)
    mount = ["mount", "-o", "loop,commit=600", str(image), str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine has no loop devices for root")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
