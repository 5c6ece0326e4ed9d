"""Bugs that let one connection keep others waiting, planted as those of simulation.cluster.bugs are."""

from __future__ import annotations

from remoting.turns import Share
from simulation.cluster.bugs import bug


@bug("floods-hold-the-loop", Share, "is_used")
def never(self: Share) -> bool:
    """All that one connection brought is handled in one turn."""
    return False
