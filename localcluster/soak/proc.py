"""Reads the resource use of a process from /proc.

Invariant: a process that has ended has no values. The values of another process that got its pid are never used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
USER_TICKS_FIELD = 11  # in /proc/PID/stat, after the command's name; system ticks follow
BLOCK_BYTES = 512


class ProcessUsage(NamedTuple):
    """Anonymous memory in bytes, open descriptors, and CPU seconds since the process's start."""

    memory: int
    descriptors: int
    cpu_s: float


def anonymous_bytes(status: str) -> int:
    """RssAnon of /proc/PID/status. Raises ValueError if it is missing (a kernel before 4.5, a zombie)."""
    for line in status.splitlines():
        key, _, value = line.partition(":")
        if key == "RssAnon":
            return int(value.split()[0]) * 1024
    raise ValueError("no RssAnon in /proc/PID/status")


def cpu_seconds(stat: str) -> float:
    """User and system time of all threads in /proc/PID/stat. The command's name may contain blanks and brackets."""
    user, system = stat.rpartition(")")[2].split()[USER_TICKS_FIELD : USER_TICKS_FIELD + 2]
    return (int(user) + int(system)) / TICKS_PER_SECOND


def taken_by(pid: int) -> ProcessUsage | None:
    """The figures of a process; None if it has ended."""
    folder = Path(f"/proc/{pid}")
    try:
        memory = anonymous_bytes((folder / "status").read_text())
        return ProcessUsage(
            memory, len(os.listdir(folder / "fd")), cpu_seconds((folder / "stat").read_text())
        )
    except (OSError, ValueError):
        return None


def disk_bytes(folder: Path) -> int:
    """The disk usage, without holes, of all files below a folder. Files that are deleted meanwhile do not count."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * BLOCK_BYTES
            except FileNotFoundError:
                continue
    return total
