"""How far each consumer group is in each queue.

Invariant: keys read `topic@group`; an offset is the next queue offset to consume, as the group committed it last or as
an administrator moved it. From such a move until the group hears of it by a pull its commits do not count. What slaves copy in
one frame fits it: beyond `BYTES_MAX` no queue is added. Pure."""

from __future__ import annotations

import orjson

from remoting.bodies.offsets import ConsumerOffsetWrapper

CONSUMER_OFFSETS_FILE = "config/consumerOffset.json"
SEPARATOR = "@"
BYTES_MAX = 12 << 20
"""Of the table as it is copied (43), about. Groups that nobody has are made up faster than any broker can copy them."""
QUEUE_BYTES = 16
"""Of a queue's id and offset, about."""
NO_ROOM = (
    "offsets of so many groups are kept that slaves could not copy more; delete groups that are gone "
    "(deleteSubGroup -r true)"
)


class ConsumerOffsets:
    """Committed offsets by topic and group, then by queue id."""

    def __init__(self) -> None:
        self._wrapper = ConsumerOffsetWrapper()
        self._resets: dict[tuple[str, str, int], int] = {}
        self._doubtful = False  # somebody may have deleted what stands here
        self._bytes = 0
        self.commits = 0

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """`group` goes on at `offset`, unless it was moved and does not know yet. False where there is no room for it."""
        return (group, topic, queue_id) in self._resets or self._put(group, topic, queue_id, offset)

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """An administrator moves `group` to `offset`. False where there is no room for it."""
        if not self._put(group, topic, queue_id, offset):
            return False
        self._resets[group, topic, queue_id] = offset
        return True

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where `group` was moved to, for the pull that tells it; None when it was not."""
        return self._resets.pop((group, topic, queue_id), None) if self._resets else None

    def _put(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        key = f"{topic}{SEPARATOR}{group}"
        queues = self._wrapper.offset_table.get(key)
        if queues is None or queue_id not in queues:
            if self._bytes >= BYTES_MAX:
                return False
            self._bytes += QUEUE_BYTES + (_cost(key) if queues is None else 0)
        if queues is None:
            queues = self._wrapper.offset_table[key] = {}
        queues[queue_id] = offset
        self.commits += 1
        return True

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        return self._wrapper.offset_table.get(f"{topic}{SEPARATOR}{group}", {}).get(queue_id)

    def topics_of(self, group: str) -> list[str]:
        """The topics that a group has committed offsets in."""
        suffix = SEPARATOR + group
        return [key.removesuffix(suffix) for key in self._wrapper.offset_table if key.endswith(suffix)]

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have committed offsets in a topic."""
        prefix = topic + SEPARATOR
        return [key.removeprefix(prefix) for key in self._wrapper.offset_table if key.startswith(prefix)]

    def committed(self) -> list[tuple[str, str]]:
        """(topic, group) of everything that has committed offsets."""
        pairs = (key.partition(SEPARATOR) for key in self._wrapper.offset_table)
        return [(topic, group) for topic, _, group in pairs]

    def remove_group(self, group: str) -> int:
        """Forget a group in all topics; in how many it stood."""
        suffix = SEPARATOR + group
        self._resets = {key: at for key, at in self._resets.items() if key[0] != group}
        return self._remove([key for key in self._wrapper.offset_table if key.endswith(suffix)])

    def remove_topic(self, topic: str) -> int:
        """Forget a topic in all groups; in how many it stood."""
        prefix = topic + SEPARATOR
        self._resets = {key: at for key, at in self._resets.items() if key[1] != topic}
        return self._remove([key for key in self._wrapper.offset_table if key.startswith(prefix)])

    def _remove(self, keys: list[str]) -> int:
        for key in keys:
            del self._wrapper.offset_table[key]
        self._weigh()
        self.commits += len(keys)
        return len(keys)

    def doubt(self) -> None:
        """The next copy replaces everything: not every deletion has come here."""
        self._doubtful = True

    def adopt(self, wrapper: ConsumerOffsetWrapper) -> bool:
        """Each topic and group that the master knows replaces ours as a whole; False when nothing is new."""
        self._resets.clear()  # a master's own affair
        table = self._wrapper.offset_table
        gone = table.keys() - wrapper.offset_table.keys() if self._doubtful else set()
        self._doubtful = False
        for key in gone:
            del table[key]
        news = {key: queues for key, queues in wrapper.offset_table.items() if table.get(key) != queues}
        table.update(news)
        if news or gone:
            self._weigh()
        return bool(news or gone)

    def encode(self) -> bytes:
        """The content of consumerOffset.json and the reply to 43."""
        return self._wrapper.encode()

    def decode(self, data: bytes) -> None:
        """Take in consumerOffset.json. Raises BodyError."""
        self._wrapper = ConsumerOffsetWrapper.decode(data)
        self._weigh()

    def _weigh(self) -> None:
        table = self._wrapper.offset_table
        self._bytes = sum(_cost(key) + QUEUE_BYTES * len(queues) for key, queues in table.items())


def _cost(key: str) -> int:
    return len(orjson.dumps(key)) + 4
