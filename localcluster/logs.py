"""Reads the times of a failover from the logs of the processes. Such a time is called a mark, for example `elected`.

Invariant: an unreadable line is ignored. A mark for which there is no log line is absent and never guessed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ([A-Z]+) (\S+) (.*)")
FIELD = re.compile(r'(?:^| )(\w+)=("(?:[^"\\]|\\.)*"|\S*)')

LOST_BROKER = re.compile(r"broker (connection ended|silent)\b")

MEMBER = "dledger.node.node"
"""The logger that reports a Raft-mode broker's role in its group."""

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
    """The wall clock time, in ms, at which the failover that began at `fault_ms` reached each of MARKS.

    `detected` is when a controller noticed a broker's end, and `elected` when a controller knew a master of a newer epoch.
    `notified` and `writable` are when that master was notified, and when it took the role. In Raft mode `detected` is when a
    broker became a candidate, and `elected` when a candidate won.
    """
    later = sorted((line for line in lines if line.time_ms >= fault_ms), key=lambda line: line.time_ms)
    newer = [line for line in later if _epoch(line) > old_epoch]
    found: dict[str, int] = {}
    for line in later:
        if (
            line.name.startswith("controller")
            and LOST_BROKER.match(line.message)
            or _in_group(line, "CANDIDATE")
        ):
            found.setdefault(DETECTED, line.time_ms)
    for line in newer:
        if (
            line.name.startswith("controller")
            and line.message.startswith("elected ")
            or _in_group(line, "LEADER")
        ):
            found.setdefault(ELECTED, line.time_ms)
    taken = next((line for line in newer if line.message.startswith("role taken role=master ")), None)
    if taken is not None:
        found[WRITABLE] = taken.time_ms
        for line in newer:
            if line.name == taken.name and line.message.startswith("role announced "):
                found.setdefault(NOTIFIED, line.time_ms)
    return found


def _in_group(line: LogLine, role: str) -> bool:
    return line.name.startswith("broker") and line.logger == MEMBER and line.fields.get("role") == role


def _epoch(line: LogLine) -> int:
    text = line.fields.get("epoch") or line.fields.get("term", "")
    return int(text) if text.isdecimal() else -1


def _plain(value: str) -> str:
    if not value.startswith('"'):
        return value
    try:
        return str(json.loads(value))
    except ValueError:
        return value
