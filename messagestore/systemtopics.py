"""The topics that brokers themselves use, with upstream's names.

Invariant: store, broker and reader take these names from here."""

from __future__ import annotations

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"  # holds delayed messages
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECKED_TOO_OFTEN_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
BENCHMARK_TOPIC = "BenchmarkTest"
AUTO_CREATE_TOPIC = "TBW102"  # the template of topics created by a first send
SYSTEM_PREFIX = "rmq_sys_"
RETRY_PREFIX = "%RETRY%"  # followed by a consumer group
DEAD_LETTER_PREFIX = "%DLQ%"

NOT_FOR_CLIENTS = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECKED_TOO_OFTEN_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
"""A client's send to one of these topics is rejected."""
KEEP_OTHERS = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECKED_TOO_OFTEN_TOPIC})
SYSTEM_TOPICS = NOT_FOR_CLIENTS | {BENCHMARK_TOPIC, AUTO_CREATE_TOPIC, TRACE_TOPIC}


def is_system_topic(topic: str) -> bool:
    """Whether this is a system topic. Retry and dead letter topics are not, because they hold users' messages."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def holds_all_users_messages(topic: str) -> bool:
    """Whether brokers keep messages of other topics in it: delayed ones, halves, or those of the timer wheel."""
    return topic in KEEP_OTHERS or topic.startswith(SYSTEM_PREFIX)
