"""The stored form of delayed messages: in the schedule topic, with their real topic and queue as properties.

Invariant: every later master can deliver a stored message. `delivered(scheduled(m))` has the topic, queue, body, flags and born
data of m. A delivered message keeps the properties DELAY, REAL_TOPIC and REAL_QID, as in upstream."""

from __future__ import annotations

from dataclasses import replace

from messagestore.messages import LaterCopy, MessageToStore
from messagestore.properties import DELAY, REAL_QUEUE_ID, REAL_TOPIC, format_properties, parse_properties
from messagestore.record import BORN_HOST_IPV6, STORE_HOST_IPV6, Message
from messagestore.recordcrc import RECORD_CRC_BYTES
from messagestore.systemtopics import SCHEDULE_TOPIC

I32_MAX = 2**31 - 1


def scheduled(message: MessageToStore, level: int, level_max: int) -> MessageToStore:
    """The stored form of `message` for delay level `level`. 1 is the first level; levels above the last count as the last."""
    assert level > 0 and not message.batch
    level = min(level, level_max)
    pairs = parse_properties(message.properties) | {
        DELAY: str(level), REAL_TOPIC: message.topic, REAL_QUEUE_ID: str(message.queue_id),
    }  # fmt: skip
    return replace(
        message,
        topic=SCHEDULE_TOPIC,
        queue_id=level - 1,
        properties=format_properties(pairs),
        copied_later=LaterCopy(message.topic, RECORD_CRC_BYTES),
    )


def delivered(waiting: Message) -> MessageToStore | None:
    """The message to deliver for `waiting`, a record of the schedule topic; None if it does not name a real topic and queue."""
    pairs = waiting.property_map
    topic, queue_id = pairs.get(REAL_TOPIC, ""), pairs.get(REAL_QUEUE_ID, "")
    known_queue = queue_id.isascii() and queue_id.isdigit() and len(queue_id) <= len(str(I32_MAX))
    if waiting.topic != SCHEDULE_TOPIC or not topic or not known_queue or int(queue_id) > I32_MAX:
        return None
    return MessageToStore(
        topic,
        int(queue_id),
        waiting.body,
        waiting.properties,
        waiting.flag,
        waiting.sys_flag & ~(BORN_HOST_IPV6 | STORE_HOST_IPV6),
        waiting.born_timestamp,
        waiting.born_host,
        waiting.reconsume_times,
        stored_before=True,
    )
