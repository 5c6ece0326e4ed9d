"""Lists of topics or groups that one request changes."""

from __future__ import annotations

DELETED_MAX = 1_000
"""Limit of one request. Upstream deletes 10 in a second, and its clients wait for seconds."""
NAMED_MAX = 3


def named(names: list[str]) -> str:
    """The first names, as part of a sentence."""
    rest = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")


def why_not_deleted(what: str, names: list[str]) -> str | None:
    """The reason why these names cannot be deleted in one request; None if they can. `what` is "topic" or "group"."""
    if not names:
        return f"the list names no {what}"
    if len(names) > DELETED_MAX:
        return f"{len(names)} {what}s in one request; {DELETED_MAX} are deleted at once"
    if any(not name.strip() for name in names):
        return f"the list has a blank {what}; nothing was deleted"
    return None
