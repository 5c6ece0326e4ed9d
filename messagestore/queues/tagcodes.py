"""The third field of a consume queue entry: a tag's hash, or the delivery time of a scheduled message.

Invariant: the cache of tag hashes is bounded. Pure."""

from __future__ import annotations

from messagestore.delaylevels import delay_levels_ms
from messagestore.properties import DELAY, last_value
from messagestore.systemtopics import SCHEDULE_TOPIC
from mqruntime.javahash import java_string_hash

SCHEDULE_TOPIC_BYTES = SCHEDULE_TOPIC.encode()
DELAY_NAME = DELAY.encode()
TAGS_REMEMBERED_MAX = 10_000


class TagCodes:
    def __init__(self, message_delay_level: str) -> None:
        self._levels_ms = delay_levels_ms(message_delay_level)
        self._hashes: dict[bytes, int] = {}

    def code(self, topic: bytes, tag: bytes, properties: bytes, store_timestamp: int) -> int:
        """The code of a record. `properties` are in stored form and contain `tag`; the store time is in ms."""
        if topic == SCHEDULE_TOPIC_BYTES and (level := last_value(properties, DELAY_NAME)):
            number = int(level) if level.removeprefix(b"-").isdigit() else 0
            if number > 0:
                return store_timestamp + self._levels_ms[min(number, len(self._levels_ms)) - 1]
        if not tag:
            return 0
        code = self._hashes.get(tag)
        if code is None:
            if len(self._hashes) >= TAGS_REMEMBERED_MAX:
                self._hashes.clear()
            code = self._hashes[tag] = java_string_hash(tag.decode("utf-8", "replace"))
        return code
