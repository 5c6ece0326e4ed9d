"""The confirm offset: the offset up to which all members that must hold the log hold it.

Invariant: the confirm offset of one mastership never falls. It does not rise while the log end of a member is unknown, or while
the set has fewer members than its master needs to acknowledge. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def confirm_offset(previous: int, ends: Iterable[int | None]) -> int:
    """The lowest of the members' log ends (the master's end is one of them), but never below `previous`. Returns `previous`
    while an end is unknown (None)."""
    lowest: int | None = None
    for end in ends:
        if end is None or end <= previous:
            return previous  # whatever the others hold
        if lowest is None or end < lowest:
            lowest = end
    return previous if lowest is None else lowest


def enough(applied_members: int, members_min: int) -> bool:
    """Whether a set with `applied_members` may confirm and acknowledge data. Data in a smaller set may be lost with this set,
    so consumers must not read it."""
    return applied_members >= members_min
