"""New messages of a queue. They show which held pulls need no read, because the pull's filter matches no new message.

Invariant: messages are skipped only by the codes of their tags, and only if every code is known. Otherwise a read is needed.
For an SQL92 expression, messages are skipped only if a read with the same expression has skipped them."""

from __future__ import annotations

from typing import Protocol

from broker.pulls.request import PullRequest
from messagestore.messages import PropertyFilter, QueueEntry
from messagestore.queues.consumequeue import is_filler

LOOKED_AT_MAX = 100
"""Limit of the messages whose codes are checked. Among more messages some usually match, so a read is needed anyway."""


class Listed(Protocol):
    """The part of the message store with the entries of queues."""

    def entries(self, topic: str, queue_id: int, queue_offset: int, count_max: int) -> list[QueueEntry]: ...


class Arrivals:
    """The messages of one queue below its present `end`."""

    def __init__(self, store: Listed, topic: str, queue_id: int, end: int) -> None:
        self._store = store
        self._topic = topic
        self._queue_id = queue_id
        self._end = end
        self._codes: dict[int, set[int] | None] = {}
        """By queue offset: the tag codes of the messages from this offset on."""
        self._unmatched: dict[tuple[int, PropertyFilter], int] = {}
        """(queue offset, filter) -> the next offset after a read that found nothing."""

    def passed_over(self, request: PullRequest) -> int | None:
        """The offset up to which the request's filter matches nothing; None if a read is needed."""
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
        """Record that a read for `request` found nothing up to `next_offset`."""
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
