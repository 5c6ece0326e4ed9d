"""Reads a broker's recent counts of messages: VIEW_BROKER_STATS_DATA (315)."""

from __future__ import annotations

from mqadmin.admin import AdminClient, body_of
from remoting.bodies.brokerstats import BrokerStatsData
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.admin import BrokerStatsHeader

TOPIC_PUT_NUMS, GROUP_GET_NUMS = "TOPIC_PUT_NUMS", "GROUP_GET_NUMS"


async def recent(client: AdminClient, broker: str, name: str, key: str) -> BrokerStatsData:
    """The counts of one topic, or of `topic@group`; zeros if the broker has none yet."""
    reply = await client.ask_for(
        broker,
        RequestCode.VIEW_BROKER_STATS_DATA,
        BrokerStatsHeader(name, key),
        absent=ResponseCode.SYSTEM_ERROR,
    )
    return BrokerStatsData() if reply is None else body_of(BrokerStatsData, broker, reply)


def day_sum(stats: BrokerStatsData) -> int:
    """The sum of the last 24 hours or, if the broker does not have it, of the longest available period. A Java broker has the
    sum of an hour only after running for an hour, and that of a day only after a day."""
    return stats.stats_day.sum or stats.stats_hour.sum or stats.stats_minute.sum
