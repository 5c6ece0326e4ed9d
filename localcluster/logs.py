"""Moments of a failover, taken from the logs of the processes that took part.

Invariant: pure; a line that cannot be read is passed over, and a mark that no line gives is absent, never
guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ([A-Z]+) (\S+) (.*)")
FIELD = re.compile(r'(?:^| )(\w+)=("(?:[^"\\]|\\.)*"|\S*)')

DETECTED, ELECTED, NOTIFIED, WRITABLE = "detected", "elected", "notified", "writable"
MARKS = (DETECTED, ELECTED, NOTIFIED, WRITABLE)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One event that the process `name` logged at `time_ms` (wall clock, UTC)."""

    name: str
    time_ms: int
    level: str
    logger: str
    message: str
    fields: dict[str, str]


def read_lines(name: str, text: str) -> list[LogLine]:
    """The readable lines of the log of `name`."""
    lines: list[LogLine] = []
    for row in text.splitlines():
        match = LINE.match(row)
        if match is None:
            continue
        stamp, level, logger, message = match.groups()
        moment = datetime.fromisoformat(stamp)
        fields = {key: _plain(value) for key, value in FIELD.findall(message)}
        lines.append(LogLine(name, round(moment.timestamp() * 1000), level, logger, message, fields))
    return lines


def marks(lines: Iterable[LogLine], fault_ms: int, old_epoch: int) -> dict[str, int]:
    """When the failover that began at `fault_ms` reached each of MARKS, in ms of the wall clock.

    `detected`: a controller noted a broker's end; `elected`: a controller noted a master of a newer epoch;
    `notified`, `writable`: the broker with that newer epoch heard of its role, and took it.
    """
    found: dict[str, int] = {}
    for line in sorted(lines, key=lambda line: line.time_ms):
        mark = _mark(line, old_epoch)
        if line.time_ms >= fault_ms and mark is not None:
            found.setdefault(mark, line.time_ms)
    return found


def _mark(line: LogLine, old_epoch: int) -> str | None:
    newer = line.fields.get("epoch", "").isdecimal() and int(line.fields["epoch"]) > old_epoch
    if line.name.startswith("controller"):
        if "broker gone" in line.message:
            return DETECTED
        if "master elected" in line.message and newer:
            return ELECTED
    elif line.name.startswith("broker") and newer and line.fields.get("role") == "master":
        if "role announced" in line.message:
            return NOTIFIED
        if "role taken" in line.message:
            return WRITABLE
    return None


def _plain(value: str) -> str:
    if not value.startswith('"'):
        return value
    try:
        return str(json.loads(value))
    except ValueError:
        return value
