"""How far each consumer group is in each queue.

Invariant: keys read `topic@group`; an offset is the next queue offset to consume, as the group committed it last."""

from __future__ import annotations

from remoting.bodies.offsets import ConsumerOffsetWrapper

CONSUMER_OFFSETS_FILE = "config/consumerOffset.json"
SEPARATOR = "@"


class ConsumerOffsets:
    """Committed offsets by topic and group, then by queue id."""

    def __init__(self) -> None:
        self._wrapper = ConsumerOffsetWrapper()
        self.commits = 0

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self._wrapper.offset_table.setdefault(f"{topic}{SEPARATOR}{group}", {})[queue_id] = offset
        self.commits += 1

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        return self._wrapper.offset_table.get(f"{topic}{SEPARATOR}{group}", {}).get(queue_id)

    def topics_of(self, group: str) -> list[str]:
        """The topics that a group has committed offsets in."""
        suffix = SEPARATOR + group
        return [key.removesuffix(suffix) for key in self._wrapper.offset_table if key.endswith(suffix)]

    def remove_group(self, group: str) -> None:
        """Forget a group in all topics."""
        suffix = SEPARATOR + group
        for key in [key for key in self._wrapper.offset_table if key.endswith(suffix)]:
            del self._wrapper.offset_table[key]
        self.commits += 1

    def remove_topic(self, topic: str) -> None:
        """Forget a topic in all groups."""
        prefix = topic + SEPARATOR
        for key in [key for key in self._wrapper.offset_table if key.startswith(prefix)]:
            del self._wrapper.offset_table[key]
        self.commits += 1

    def adopt(self, wrapper: ConsumerOffsetWrapper) -> bool:
        """Each topic and group that the master knows replaces ours as a whole; False when nothing is new."""
        table = self._wrapper.offset_table
        news = {key: queues for key, queues in wrapper.offset_table.items() if table.get(key) != queues}
        table.update(news)
        return bool(news)

    def encode(self) -> bytes:
        """The content of consumerOffset.json and the reply to 43."""
        return self._wrapper.encode()

    def decode(self, data: bytes) -> None:
        """Take in consumerOffset.json. Raises BodyError."""
        self._wrapper = ConsumerOffsetWrapper.decode(data)
