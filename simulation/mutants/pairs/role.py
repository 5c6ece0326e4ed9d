"""Planted bugs that let a stranger change a broker's role."""

from __future__ import annotations

from broker.app import BrokerApp
from broker.role.membership import Membership
from simulation.hostile.believed import hears_notifications, takes_what_is_notified
from simulation.mutants.pairs.bugs import BUGS

bug = BUGS.playing("forger")

bug("notification-believed", BrokerApp, "start")(hears_notifications)
bug("notification-believed", Membership, "notified")(takes_what_is_notified)
