"""Repair of tags codes and sizes in consume queues: the scrub compares each record that it reads with the record's queue entry.

A reader with a tag filter skips a message by its entry alone, so a tags code that became corrupt on the disk hides the message
and nobody notices. A filter that reads the record (`messagestore.queues.matching`) needs no such check. An entry with a wrong
size fails its readers (`messagestore.queues.reading`) until it is repaired here.

Invariant: an entry changes only if it leads to exactly this record, and the record is intact as far as its CRCs show. Due times
of delayed messages, which the schedule topic keeps in this field, stay as they are: their levels may have changed since, and
their delivery compares them with the records (`broker.sends.delaydelivery`)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, NamedTuple

from messagestore import record
from messagestore.dispatch.dispatcher import NEVER, Dispatcher
from messagestore.dispatch.endcheck import Other, named
from messagestore.errors import LogReplaced, OffsetOutOfRange, StoreCorrupted
from messagestore.log.files import LogFiles
from messagestore.queues.consumequeue import is_filler
from messagestore.queues.ends import Key
from messagestore.queues.table import QueueTable
from messagestore.queues.tagcodes import SCHEDULE_TOPIC_BYTES
from mqruntime.log import fields

logger = logging.getLogger(__name__)

SLICE_BYTES = 256 << 10
SLICE_RECORDS = 256


class Due(NamedTuple):
    """The entry that a record must have."""

    queue_offset: int
    phy: int
    size: int
    tags_code: int


class EntryMending:
    """`dispatcher` is the store's: it knows the record framing, and which records are listed."""

    def __init__(self, log: LogFiles, queues: QueueTable, dispatcher: Dispatcher) -> None:
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._due = DueEntries(queues)
        self._walker = dispatcher.alone(self._due)
        self._logged: set[Key] = set()
        self.repairs = 0

    @property
    def listed_end(self) -> int:
        """Records that end at or below have their entries."""
        return self._dispatcher.position

    async def compare(self, start: int, end: int) -> tuple[int, int]:
        """Compare the entries of some records from the boundary `start` on, at least one, none that ends above `end`. Returns
        the boundary reached and the number of records; where no record can be read, the end of the segment, and 0. Raises
        OSError if the disk does not return the log."""
        segment_end = self._log.segment_start(start) + self._log.segment_size_bytes
        limit, wanted = min(end, segment_end, self.listed_end), SLICE_BYTES
        while start < limit:
            stop = min(start + wanted, limit)
            try:
                reached = await self._log.examine(
                    start, stop, lambda content: self._walk(content, start, segment_end, limit)
                )
            except LogReplaced:  # the whole log is; the caller must know
                raise
            except (OffsetOutOfRange, IndexError):  # deleted or cut meanwhile
                break
            due = self._due.taken()
            for key, entries in due.items():
                await self._compare_queue(key, entries)
            if reached > start:
                return reached, sum(map(len, due.values()))
            if stop == limit:
                break
            wanted *= 2  # a longer record
        return segment_end, 0

    def _walk(self, content: bytes, start: int, segment_end: int, limit: int) -> int:
        """Collect due entries, in a thread; returns the boundary reached."""
        self._walker.position = start
        with suppress(StoreCorrupted):  # the scrub itself reports damaged records
            self._walker.run(content, start, segment_end, limit, SLICE_RECORDS)
        return self._walker.position

    async def _compare_queue(self, key: Key, due: list[Due]) -> None:
        await asyncio.sleep(0)  # opening a queue's file takes as long as many entries
        first = end = 0
        for each in due:
            place = each.queue_offset
            if not first <= place < end:
                if not await self._is_in_memory(key, place):
                    return
                first, end = place, place + SLICE_RECORDS
            if self._is_wrong(key, each) and await self._is_intact(each) and self._is_wrong(key, each):
                self._repair(key, each)

    async def _is_in_memory(self, key: Key, place: int) -> bool:
        """Read some entries from `place` on, so that a look at them waits for no disk; False if they cannot be read."""
        queue = self._queues.by_key.get(key)
        try:
            if queue is not None and not queue.is_at_hand(place, SLICE_RECORDS):
                await queue.bring(place, SLICE_RECORDS)
        except OSError as error:
            logger.warning(
                "a consume queue cannot be read to compare it with the log",
                extra=fields(queue=named(key), queue_offset=place, why=error),
            )
            return False
        return True

    def _is_wrong(self, key: Key, due: Due) -> bool:
        """Whether the entry leads to the record and has another size or tags code. Queues may be cut or deleted between two
        calls."""
        queue = self._queues.by_key.get(key)
        if queue is None or not queue.min_queue_offset <= due.queue_offset < queue.max_queue_offset:
            return False
        entry = queue.entry(due.queue_offset)
        return entry[0] == due.phy and not is_filler(entry) and entry[1:] != (due.size, due.tags_code)

    async def _is_intact(self, due: Due) -> bool:
        """Whether the record's CRCs, the record CRC too where it has one, agree: tags are outside the body's."""
        try:
            content = await self._log.read_file(due.phy, due.phy + due.size)
        except LogReplaced:
            raise
        except (OffsetOutOfRange, IndexError):
            return False
        return record.check(content, 0, due.size, due.phy, verify_record=True) == due.size

    def _repair(self, key: Key, due: Due) -> None:
        self._queues.by_key[key].mend(due.queue_offset, due.size, due.tags_code)
        self.repairs += 1
        if key not in self._logged:
            self._logged.add(key)
            logger.warning(
                "a tags code or size in a consume queue was wrong, readers by tag skipped the message or all failed: it is "
                "repaired from the log, and so are others of this queue, without a line",
                extra=fields(queue=named(key), queue_offset=due.queue_offset, at=due.phy),
            )


class DueQueue:
    """Replaces a consume queue whose entries are collected."""

    max_queue_offset = NEVER
    phy_end = 0

    def __init__(self) -> None:
        self.entries: list[Due] = []

    def append(self, queue_offset: int, phy: int, size: int, tags_code: int) -> bool:
        self.entries.append(Due(queue_offset, phy, size, tags_code))
        return False


class DueEntries(QueueTable):
    """The due entries of dispatched records, except those of the schedule topic."""

    def __init__(self, queues: QueueTable) -> None:
        super().__init__(queues.directory, queues.file_size)
        self._other = Other()
        self._due: dict[Key, DueQueue] = {}

    def get(self, topic: bytes, queue_id: int) -> Any:
        if topic == SCHEDULE_TOPIC_BYTES:
            return self._other
        due = self._due.get((topic, queue_id))
        if due is None:
            due = self._due[topic, queue_id] = DueQueue()
        return due

    def taken(self) -> dict[Key, list[Due]]:
        """The entries collected since the last call, by queue."""
        due, self._due = self._due, {}
        return {key: queue.entries for key, queue in due.items()}
