"""What came to a queue: nothing is read for a pull that surely wants none of it.

Invariant: by the codes of their tags only messages are passed over, and only where the code of every one is known; what else
a queue may list is for a read to judge. By an SQL92 expression is passed over what a read with the same one passed over."""

from __future__ import annotations

from typing import Protocol

from broker.pulls.request import PullRequest
from messagestore.messages import PropertyFilter, QueueEntry
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
        self._unmatched: dict[tuple[int, PropertyFilter], int] = {}
        """Where a read with the filter from there went on, having found nothing."""

    def passed_over(self, request: PullRequest) -> int | None:
        """Where it goes on, if its filter surely wants nothing from its offset up to there."""
        offset = request.offset
        if request.matching is not None:
            return self._unmatched.get((offset, request.matching))
        if request.filter is None:
            return None
        if offset not in self._codes:
            self._codes[offset] = self._codes_from(offset)
        codes = self._codes[offset]
        unwanted = codes is not None and not any(map(request.filter, codes))
        return self._end if unwanted else None

    def found_nothing(self, request: PullRequest, next_offset: int) -> None:
        """A read for `request` goes on at `next_offset`."""
        if request.matching is not None:
            self._unmatched[request.offset, request.matching] = next_offset

    def _codes_from(self, offset: int) -> set[int] | None:
        count = self._end - offset
        if count > LOOKED_AT_MAX:
            return None
        entries = self._store.entries(self._topic, self._queue_id, offset, count)
        if len(entries) < count or any(entry.size <= 0 or is_filler(entry) for entry in entries):
            return None
        return {entry.tags_code for entry in entries}
