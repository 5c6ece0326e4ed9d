"""Up to where a log is held by everybody who must hold it.

Invariant: the confirm offset of one mastership never falls; a member whose end is unknown stops it, and so does a set that has
fewer members than its master acknowledges with. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def confirm_offset(previous: int, ends: Iterable[int | None]) -> int:
    """The lowest of the members' log ends (the master's own is one of them), but never below `previous`;
    `previous` itself while one is unknown (None)."""
    lowest: int | None = None
    for end in ends:
        if end is None or end <= previous:
            return previous  # whatever the others hold
        if lowest is None or end < lowest:
            lowest = end
    return previous if lowest is None else lowest


def enough(applied_members: int, members_min: int) -> bool:
    """Whether a set of so many members may confirm and acknowledge anything. What a smaller set holds may be gone with it, so
    nobody must have read it."""
    return applied_members >= members_min
