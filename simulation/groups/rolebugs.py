"""Bugs of forged roles, planted as those of simulation.groups.bugs are."""

from __future__ import annotations

from broker.app import BrokerApp
from broker.role.membership import Membership
from simulation.groups.bugs import BUGS
from simulation.hostile.believed import hears_notifications, takes_what_is_notified

bug = BUGS.playing("forger")

bug("notification-believed", BrokerApp, "start")(hears_notifications)
bug("notification-believed", Membership, "notified")(takes_what_is_notified)
