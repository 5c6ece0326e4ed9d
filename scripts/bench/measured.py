"""The kernel's figures of running processes, and the format of a figure of several runs.

Invariant: only /proc is read. The processes get no requests, so measuring costs them nothing."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
USER_TICKS_FIELD = 11  # in /proc/PID/stat, after the command's name; system ticks follow


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of the process since its start, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[USER_TICKS_FIELD : USER_TICKS_FIELD + 2]
    return (int(user) + int(system)) / TICKS_PER_SECOND


def resident_mib(pid: int) -> float:
    """Resident memory, including shared libraries and used pages of mapped files."""
    return _status_kib(pid, "VmRSS") / 1024


def own_mib(pid: int) -> float:
    """The part of `resident_mib` that no file backs, which is what the process itself allocated."""
    return _status_kib(pid, "RssAnon") / 1024


def spread(values: Sequence[float], unit: str, digits: int = 1) -> str:
    """A text such as `min 1.0 median 2.0 max 3.0 MiB (3 runs)`."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return (
        f"min {low:.{digits}f}  median {middle:.{digits}f}  max {high:.{digits}f} {unit} ({len(values)} runs)"
    )


def high(values: Sequence[float]) -> float:
    """The 99th percentile."""
    return sorted(values)[len(values) * 99 // 100]


def written(value: float) -> str:
    """A value for a cell of a table, with at least three digits. Small values have two or three decimal places."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.1 else 3
    return f"{value:,.{digits}f}"


def cell(values: Sequence[float]) -> str:
    """A cell as `median (min–max)`."""
    return f"{written(statistics.median(values))} ({written(min(values))}–{written(max(values))})"


def machine() -> str:
    """The cores and the present load of this machine, because other work spoils every figure."""
    return f"{os.cpu_count()} cores, load of the last minute {os.getloadavg()[0]:.2f}"


def _status_kib(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0])
    raise SystemExit(f"/proc/{pid}/status has no {name}; this needs Linux 4.5 or newer")
