"""Ends of queues whose messages retention has deleted, which a later replica cannot find in its log.

Invariant: an end never decreases, so no queue offset is used for two messages."""

from __future__ import annotations

from collections.abc import Callable

from remoting.bodies.tables import QueueEnd, QueueEndTable

QUEUE_ENDS_FILE = "config/queueEnds.json"


class QueueEndsTable:
    """`on_end(topic, queue id, end)` for each new end."""

    def __init__(self, on_end: Callable[[str, int, int], None]) -> None:
        self._on_end = on_end
        self._ends: dict[tuple[str, int], int] = {}

    def adopt(self, table: QueueEndTable) -> bool:
        """Take in the ends of the master or the file; False when nothing changed."""
        news = [each for each in table.ends if each.end > self._ends.get((each.topic, each.queue_id), 0)]
        for each in news:
            self._ends[each.topic, each.queue_id] = each.end
            self._on_end(each.topic, each.queue_id, each.end)
        return bool(news)

    def encode(self) -> bytes:
        """The content of queueEnds.json."""
        ends = [QueueEnd(topic, queue_id, end) for (topic, queue_id), end in sorted(self._ends.items())]
        return QueueEndTable(ends).encode()

    def decode(self, data: bytes) -> None:
        """Take in queueEnds.json. Raises BodyError."""
        self.adopt(QueueEndTable.decode(data))
