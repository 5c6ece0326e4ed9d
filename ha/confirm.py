"""Up to where a log is held by everybody who must hold it.

Invariant: the confirm offset of one mastership never falls, and a member whose end is unknown stops it. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def confirm_offset(previous: int, ends: Iterable[int | None]) -> int:
    """The lowest of the members' log ends (the master's own is one of them), but never below `previous`;
    `previous` itself while one is unknown (None)."""
    lowest: int | None = None
    for end in ends:
        if end is None:
            return previous
        lowest = end if lowest is None else min(lowest, end)
    return previous if lowest is None else max(previous, lowest)


def acked_end(confirm: int, applied_members: int, members_min: int) -> int:
    """Sends that end at or below this may be answered OK: every member of the applied and of all proposed sets
    holds them, and the applied set has `members_min` members at least. 0 while it has fewer: nothing may be."""
    return confirm if applied_members >= members_min else 0
