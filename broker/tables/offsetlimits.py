"""Up to where a new master believes the offsets that it has of consumers.

A master that was elected without all that was confirmed (`enableElectUncleanMaster`) has a table that may be ahead of its log,
and so may its slaves, until they have copied its table. An offset beyond the queue would pass over what is sent there next.

Invariant: an offset that is believed leads to no message behind the log that the table's master had, or to the queue's end.
Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

from epochfile.history import EpochHistory
from messagestore.messages import QueueEntry
from messagestore.queues.consumequeue import listed_start


class Log(Protocol):
    """What is asked about queues."""

    def next_queue_offset(self, topic: str, queue_id: int) -> int: ...

    def max_queue_offset(self, topic: str, queue_id: int) -> int: ...

    def min_queue_offset(self, topic: str, queue_id: int) -> int: ...

    def entries(
        self, topic: str, queue_id: int, queue_offset: int, count_max: int
    ) -> Sequence[QueueEntry]: ...


def common_end(history: EpochHistory, table_epoch: int | None) -> int | None:
    """Where the log ends that the master of `table_epoch` can have had in common with this one; None for all of it."""
    if table_epoch is None:
        return None
    return next((entry.start_offset for entry in history if entry.epoch > table_epoch), None)


class OffsetLimits:
    """Of the queues of `log`; `end` as `common_end` says."""

    def __init__(self, log: Log, end: int | None) -> None:
        self._log = log
        self._end = end
        self._known: dict[tuple[str, int], int] = {}

    def of(self, topic: str, queue_id: int) -> int:
        """The highest offset in this queue that is believed."""
        limit = self._known.get((topic, queue_id))
        if limit is None:
            limit = self._known[topic, queue_id] = self._find(topic, queue_id)
        return limit

    def _find(self, topic: str, queue_id: int) -> int:
        log, end = self._log, self._end
        if end is None:
            return log.next_queue_offset(topic, queue_id)
        first, listed = log.min_queue_offset(topic, queue_id), log.max_queue_offset(topic, queue_id)
        limit = first + bisect_left(
            range(first, listed), True, key=lambda offset: self._is_behind(topic, queue_id, offset, end)
        )
        return limit if limit < listed else log.next_queue_offset(topic, queue_id)

    def _is_behind(self, topic: str, queue_id: int, offset: int, end: int) -> bool:
        entries = self._log.entries(topic, queue_id, offset, 1)
        return bool(entries) and listed_start(entries[0]) >= end
