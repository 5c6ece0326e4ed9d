"""The confirm offset: how far all members that must hold the log hold it.

Invariant: the confirm offset of one mastership never falls. A member whose end is unknown stops it, and so does a set
with fewer members than its master acknowledges with. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def confirm_offset(previous: int, ends: Iterable[int | None]) -> int:
    """The lowest of the members' log ends (the master's own is one of them), but never below `previous`; `previous`
    itself while one is unknown (None)."""
    lowest: int | None = None
    for end in ends:
        if end is None or end <= previous:
            return previous  # whatever the others hold
        if lowest is None or end < lowest:
            lowest = end
    return previous if lowest is None else lowest


def enough(applied_members: int, members_min: int) -> bool:
    """Whether a set of so many members may confirm and acknowledge anything. Data of a smaller set may be lost with
    it, so it must not be read."""
    return applied_members >= members_min
