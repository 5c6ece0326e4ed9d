"""The ends of queues whose messages retention has deleted. A later replica cannot find these ends in its log.

Invariant: an end never decreases, so two messages never get the same queue offset."""

from __future__ import annotations

from collections.abc import Callable

from remoting.bodies.tables import QueueEnd, QueueEndTable

QUEUE_ENDS_FILE = "config/queueEnds.json"


class QueueEndsTable:
    """The table; calls `on_end(topic, queue id, end)` for each new end."""

    def __init__(self, on_end: Callable[[str, int, int], None]) -> None:
        self._on_end = on_end
        self._ends: dict[tuple[str, int], int] = {}

    def adopt(self, table: QueueEndTable) -> bool:
        """Adopt the ends of the master or the file. Returns False if nothing changed."""
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
        """Read the content of queueEnds.json. Raises BodyError."""
        self.adopt(QueueEndTable.decode(data))
