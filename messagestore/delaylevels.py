"""The setting that assigns a delay to each delay level of messages.

Invariant: a setting that `delay_levels_ms` accepts assigns a time to each level, from 1 on."""

from __future__ import annotations

UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def delay_levels_ms(setting: str) -> list[int]:
    """A text such as `1s 5s 1m` as milliseconds, level 1 first. Raises ValueError for an unknown unit or without levels."""
    levels = []
    for level in setting.split():
        number, unit = level[:-1], level[-1:]
        if unit not in UNIT_MS or not number.isdecimal():
            raise ValueError(f"{level!r} in messageDelayLevel is not a number with unit s, m, h or d")
        levels.append(int(number) * UNIT_MS[unit])
    if not levels:
        raise ValueError("messageDelayLevel must have a level")
    return levels
