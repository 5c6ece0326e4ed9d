"""What came to a queue, by the codes of its tags: nothing is read for a pull that wants none of them.

Invariant: only messages are passed over, and only where the code of every one is known; what else a queue may list is for a
read to judge."""

from __future__ import annotations

from typing import Protocol

from broker.pulls.request import PullRequest
from messagestore.messages import QueueEntry
from messagestore.queues.consumequeue import is_filler

LOOKED_AT_MAX = 100
"""Messages: among more there mostly is what is wanted, and they are to be read in any case."""


class Listed(Protocol):
    """The part of the message store that lists a queue."""

    def entries(self, topic: str, queue_id: int, queue_offset: int, count_max: int) -> list[QueueEntry]: ...


class Arrivals:
    """The messages of one queue below `end`, which is where it ends by now."""

    def __init__(self, store: Listed, topic: str, queue_id: int, end: int) -> None:
        self._store = store
        self._topic = topic
        self._queue_id = queue_id
        self._end = end
        self._codes: dict[int, set[int] | None] = {}
        """By the queue offset of the first of them."""

    def unwanted_by(self, request: PullRequest) -> bool:
        """Whether its filter surely wants none of those from its offset on."""
        if request.filter is None:
            return False
        offset = request.offset
        if offset not in self._codes:
            self._codes[offset] = self._codes_from(offset)
        codes = self._codes[offset]
        return codes is not None and not any(map(request.filter, codes))

    def _codes_from(self, offset: int) -> set[int] | None:
        count = self._end - offset
        if count > LOOKED_AT_MAX:
            return None
        entries = self._store.entries(self._topic, self._queue_id, offset, count)
        if len(entries) < count or any(entry.size <= 0 or is_filler(entry) for entry in entries):
            return None
        return {entry.tags_code for entry in entries}
