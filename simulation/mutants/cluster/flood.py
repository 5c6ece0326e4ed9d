"""Planted bugs that let one connection keep others waiting."""

from __future__ import annotations

from controller import setlocks as turns
from remoting.turns import TurnShare
from simulation.mutants.cluster.bugs import BUGS

bug = BUGS.playing("floods")


@bug("floods-hold-the-loop", TurnShare, "is_used")
def floods_hold_the_loop(self: TurnShare) -> bool:
    """All requests received on one connection are handled in one turn."""
    return False


@bug("elections-wait-in-line", turns, "order_of")
def elections_wait_in_line(asker: turns.CommandSource) -> int:
    """Endless commands from strangers keep a controller from replacing a master that died."""
    return 0
