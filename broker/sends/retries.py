"""The retry topic and the dead letter topic for messages that a consumer could not consume.

Invariant: the tries of a message are bounded, by the group's configuration or by the limit of a client of 3.4.9 or later."""

from __future__ import annotations

from messagestore.properties import UNIQ_KEY
from messagestore.record import Message
from messagestore.systemtopics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from remoting.bodies.groups import SubscriptionGroupConfig

DLQ_QUEUES = 1
V3_4_9 = 121  # wire number of the first client version whose own limit counts
FIRST_RETRY_LEVEL = 3  # the delay level of the first retry: 10 s by default
NO_DELAY = "-1"

RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"


def is_named(message: Message, name: str | None) -> bool:
    """Whether clients call `message` by `name`: its unique key (UNIQ_KEY) or its storage id. An empty `name` matches any
    message, because upstream does not require a name."""
    return not name or name == message.property_map.get(UNIQ_KEY) or name.upper() == message.message_id


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    return DEAD_LETTER_PREFIX + group


def group_of_retry_topic(topic: str) -> str:
    return topic.removeprefix(RETRY_PREFIX)


def retries_max(group: SubscriptionGroupConfig, asked: int | None, client_version: int) -> int:
    """Maximum number of retries of a message of `group`."""
    return asked if asked is not None and client_version >= V3_4_9 else group.retry_max_times


def retry_level(asked_level: int, reconsume_times: int) -> int:
    """The delay level of the next try. If the client requests none, the level grows from try to try. Senders choose the first
    number of tries, which may be negative."""
    return asked_level or FIRST_RETRY_LEVEL + max(reconsume_times, 0)
