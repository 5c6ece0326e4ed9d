"""The metrics that a soak draws, the processes that have each metric, and the formatting of values.

Invariant: the name of every column in a recording is `column` of a process name and a metric. Pure."""

from __future__ import annotations

import math
from enum import StrEnum

LOAD = "load"
"""The process of the soak itself: sender, consumer, and sampler."""


class SoakFigure(StrEnum):
    """A metric; its value is its heading. Disk, offsets and lags are in bytes unless the heading says otherwise."""

    RATE = "acknowledged messages a second"
    SILENCE = "seconds since the last acknowledgement"
    CONSUMER_LAG = "messages that the consumer has not read"
    MEMORY = "anonymous memory"
    DESCRIPTORS = "open descriptors"
    DISK = "disk taken by the store"
    CPU = "CPU, per cent of a core"
    DISPATCH_BEHIND = "confirmed log that queues do not list yet"
    MIN_OFFSET = "first offset of the log"
    MAX_OFFSET = "end of the log"
    CONFIRM_OFFSET = "confirm offset"


IN_BYTES = frozenset(
    {
        SoakFigure.MEMORY,
        SoakFigure.DISK,
        SoakFigure.DISPATCH_BEHIND,
        SoakFigure.MIN_OFFSET,
        SoakFigure.MAX_OFFSET,
        SoakFigure.CONFIRM_OFFSET,
    }
)


def column(name: str, figure: SoakFigure) -> str:
    return f"{name}/{figure.name}"


def formatted(value: float, *, in_bytes: bool) -> str:
    """At most four digits and a unit; `-` for an unknown value."""
    if math.isnan(value):
        return "-"
    if not in_bytes:
        return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(value) >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"
