"""Planted bugs of SQL92 filters."""

from __future__ import annotations

from broker.clients import subscription
from broker.tables.consumerfilters import ConsumerFilters
from filters.sql92 import compiled
from messagestore.messages import PropertyFilter
from remoting.bodies.heartbeats import SubscriptionData
from simulation.mutants.cluster.bugs import BUGS

bug = BUGS.playing("filters")


@bug("unknown-is-enough", subscription, "compiled")
def unknown_is_enough(expression: str) -> PropertyFilter:
    """A message matches although its properties make the expression unknown."""
    is_not = compiled(f"NOT ({expression})")
    return lambda properties: not is_not(properties)


@bug("expressions-not-kept", ConsumerFilters, "_put")
def expressions_not_kept(self: ConsumerFilters, group: str, wanted: SubscriptionData) -> bool:
    """The expressions of groups are known only while the groups are connected."""
    return False
