"""Bugs in what clients' requests are refused for, planted as those of simulation.cluster.bugs are."""

from __future__ import annotations

from broker.sends import admission
from remoting.command import Body
from simulation.cluster.bugs import bug


@bug("members-unchecked", admission, "check_members")
def envelopes_alone(body: Body) -> None:
    """As upstream's: a batch is judged by its envelope, and a delayed message in it is delivered at once."""
