"""Bugs of catching up, planted as those of simulation.cluster.bugs are."""

from __future__ import annotations

from ha.master.mastership import Mastership
from ha.master.pace import Pace
from simulation.cluster.bugs import bug


@bug("limit-forgotten", Pace, "allowed")
def whatever_there_is(self: Pace, size: int, now_ms: int) -> int:
    """A replica that catches up takes all of the network, and of the master."""
    return size


@bug("members-held-back", Mastership, "pace_of")
def for_everybody(self: Mastership, broker_id: int) -> int | None:
    """Upstream: the limit is for each link, and sends wait for it."""
    return self._catch_up_limit()
