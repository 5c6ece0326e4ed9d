"""Retry or dead letter topic for a message that a consumer could not consume.

Invariant: a group's tries are bounded, by its configuration or by the limit of a client of 3.4.9 or later."""

from __future__ import annotations

from messagestore.properties import UNIQ_KEY
from messagestore.record import Message
from messagestore.systemtopics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from remoting.bodies.groups import SubscriptionGroupConfig

DLQ_QUEUES = 1
V3_4_9 = 121  # the version number on the wire from which on a client's own limit counts
FIRST_RETRY_LEVEL = 3  # the delay level of the first retry: 10 s by default
NO_DELAY = "-1"

RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"


def is_named(message: Message, name: str | None) -> bool:
    """Whether clients name `message` so: the producer's id, or its storage id if it has none. Without a name, which
    upstream does not require, the message at the offset is taken."""
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
    """The delay level of the next try; without a requested one it grows from try to try."""
    return asked_level or FIRST_RETRY_LEVEL + reconsume_times
