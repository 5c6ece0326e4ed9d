"""Which topics belong to the brokers themselves, and so are not read unless asked for."""

from __future__ import annotations

import numpy as np

SYSTEM_TOPICS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest", "TBW102", "RMQ_SYS_TRACE_TOPIC",
    }
)  # fmt: skip


SYSTEM_PREFIX = "rmq_sys_"
SYSTEM_TOPICS_BEGIN = np.isin(np.arange(256), [ord(topic[0]) for topic in (*SYSTEM_TOPICS, SYSTEM_PREFIX)])
"""By a first byte, whether a system topic begins with it."""


def is_system_topic(topic: str) -> bool:
    """Retry and dead letter topics are no system topics: they hold users' messages."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)
