"""To whom a leader that others are preferred to gives way; upstream's preferredLeaderIds.

Invariant: only to a member that can lead at once: heard lately, and level. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dledger.progress import Progress
from dledger.transfer import fittest


def level_among(
    preferred: Collection[str], progress: Mapping[str, Progress], held_index: int, heard_since_ms: int
) -> str | None:
    """Who of `preferred` holds most of those that were heard lately, may be elected, and hold all up to `held_index`: a member
    that has far to go would stop the group until it is there."""
    level = {
        peer: known
        for peer, known in progress.items()
        if peer in preferred and known.match_index >= held_index
    }
    return fittest(level, heard_since_ms)
