"""A broker's traffic statistics."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.bodies.body import Body
from remoting.wirefields import I64


@dataclass(slots=True)
class BrokerStatsItem(Body):
    """Totals of one window: amount, amount per second, and amount per call."""

    sum: I64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclass(slots=True)
class BrokerStatsData(Body):
    """Reply to VIEW_BROKER_STATS_DATA (315)."""

    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)
