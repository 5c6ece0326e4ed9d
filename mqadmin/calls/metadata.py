"""Reads the topics and groups of users (not those of the system) on one broker, with their settings as JSON."""

from __future__ import annotations

from typing import Any

from mqadmin.admin import AdminClient, body_of
from mqadmin.calls.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from remoting.bodies.groups import SubscriptionGroupWrapper
from remoting.bodies.routes import TopicList
from remoting.bodies.topics import TopicConfigWrapper
from remoting.codes import RequestCode

SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_TOPICS = frozenset(
    {
        "TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC", "rmq_sys_wheel_timer",
    }
)  # fmt: skip
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
PREDEFINED_GROUPS = frozenset(
    {
        "DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "TOOLS_CONSUMER", "SCHEDULE_CONSUMER", "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP", "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_ONSAPI_PULL", "CID_RMQ_SYS_TRANS",
    }
)  # fmt: skip
"""Names that upstream's tools leave out."""


async def user_topics(client: AdminClient, broker: str, *, with_special: bool = False) -> dict[str, Any]:
    """The topics of GET_ALL_TOPIC_CONFIG (21) by name, without system topics (305). Retry and dead letter topics are included
    only if `with_special`."""
    reply = await client.ask(broker, RequestCode.GET_ALL_TOPIC_CONFIG)
    table = body_of(TopicConfigWrapper, broker, reply).topic_config_table
    system = await client.ask(broker, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    own = SYSTEM_TOPICS | set(body_of(TopicList, broker, system).topic_list)
    special = () if with_special else (RETRY_PREFIX, DEAD_LETTER_PREFIX)
    return {
        name: topic.members()
        for name, topic in sorted(table.items())
        if name not in own and not name.startswith((SYSTEM_TOPIC_PREFIX, *special))
    }


async def user_groups(client: AdminClient, broker: str) -> dict[str, Any]:
    """The consumer groups of GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201) by name, without groups of upstream's own tools."""
    reply = await client.ask(broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    table = body_of(SubscriptionGroupWrapper, broker, reply).subscription_group_table
    return {
        name: group.members()
        for name, group in sorted(table.items())
        if name not in PREDEFINED_GROUPS and not name.startswith(SYSTEM_GROUP_PREFIX)
    }
