"""Dispatch: consume queue and index entries for records that every in-sync replica holds. Upstream: ReputMessageService.

Invariant: every record that ends at or below `position` has its entries, and no record that ends above the confirm offset has
one. A run ends at the first record above its limit; only a moved confirm offset starts the next run. No other record of a
master ends a run: if a record skips queue offsets, the gap is bridged, counted and logged. `known` holds the fields
(QueueFacts) of records that were just appended, so that dispatch need not read them; they equal the fields in the log, except
for the property with the record CRC. Code that cuts the log, or lets other code write to it, clears `known` first."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Self

from messagestore import record
from messagestore.bulk.presence import NUMPY
from messagestore.errors import QueueOffsetGap, StoreCorrupted
from messagestore.index.table import IndexTable
from messagestore.messages import QueueGrew
from messagestore.properties import dispatched_values
from messagestore.queues.table import QueueTable
from messagestore.queues.tagcodes import TagCodes
from messagestore.record import Buffer, QueueFacts
from messagestore.systemtopics import SCHEDULE_TOPIC
from mqruntime.log import fields
from nativepath import presence

if TYPE_CHECKING:
    from messagestore.bulk.records import Records
    from messagestore.dispatch.bulkentries import BulkEntries

logger = logging.getLogger(__name__)

NEVER = 1 << 62
PLAIN_FACTOR = 8
"""A step takes this many plain records instead of one other record, because a plain record costs that much less."""
KNOWN_MAX = 256  # of more records, the older ones are read from the log in bulk
NEW_QUEUES_MAX = 8  # limit of a run: a new queue costs as much as hundreds of records


class Dispatcher:
    lead = 0
    """Bytes of framing before each record."""

    def __init__(self, queues: QueueTable, message_delay_level: str, index: IndexTable | None = None) -> None:
        self.position = 0  # a record boundary
        self.log_min = 0  # a log that starts at 0 holds the first message of each queue
        self.store_timestamp = 0  # that of the last dispatched record, ms
        self.skips = 0  # records with an unexpected queue offset, or whose queue cannot have a folder
        self.refuses_gaps = (
            False  # while it is unknown whether the log misses records or the queue misses entries
        )
        self._plain = None
        if presence.native is not None:
            self._plain = presence.native.Entries(queues.by_key, SCHEDULE_TOPIC.encode())
        # the compiled module needs no known facts: it reads the records from the log
        self.known: deque[tuple[int, QueueFacts]] = deque(maxlen=0 if self._plain else KNOWN_MAX)
        """Records that this process appended, each with its physical offset, in log order."""
        self._queues = queues
        self._index = index
        self._delay_levels = message_delay_level
        self._tags = TagCodes(message_delay_level)
        self._new_queues = 0  # begun in this run
        self._grown: dict[tuple[bytes, int], int] = {}
        self._logged_skips: set[tuple[bytes, int]] = set()  # queues whose skips were logged
        self.bulk: BulkEntries | None = None
        if NUMPY:
            from messagestore.dispatch.bulkentries import BulkEntries

            self.bulk = BulkEntries(queues, index, self._tags)

    def alone(self, queues: QueueTable, index: IndexTable | None = None) -> Self:
        """A dispatcher of the same log that gives records one by one to `queues` and `index`."""
        other = type(self)(queues, self._delay_levels, index)
        other._plain = other.bulk = None
        other.log_min = self.log_min
        return other

    def run(self, buffer: Buffer, start: int, segment_end: int, limit: int, records_max: int) -> bool:
        """Dispatch at most `records_max` records from `position` on, but no record that ends above `limit`.

        `buffer` holds log bytes from offset `start` on, of one segment that ends at `segment_end`. Returns True if the run
        stopped because of `records_max`, of many new queues, or of a segment's end below `limit`. Returns False if the run
        needs a higher limit or more bytes to continue. Raises StoreCorrupted if bytes that should be a record below `limit` are
        invalid, and OSError if the disk is full; the same run may then be tried again. In bulk, a run may take thousands of
        records more than `records_max`."""
        self._new_queues = 0
        end = min(limit, segment_end)
        records_max -= self._put_known(end, records_max)
        if (
            self._plain is None
            and self.bulk is not None
            and end - self.position >= self.bulk.records_min * record.RECORD_SIZE_MIN
        ):
            ahead = memoryview(buffer)[self.position - start : end - start]
            records = self.bulk.records_of(ahead, self.position)
            if records is not None and self.put_many(records) >= records_max:
                return True
        while records_max > 0:
            if self._new_queues >= NEW_QUEUES_MAX:
                return True
            if self._plain is not None:
                records_max -= self._put_plain(buffer, start, end, PLAIN_FACTOR * records_max)
                if records_max <= 0:
                    return True
            records_max -= 1
            position = self.position
            if position + record.PREFIX.size > limit:
                return False
            at = position - start
            facts = record.queue_facts(buffer, at, segment_end - position, position)
            if not isinstance(facts, int):
                if position + facts.size > limit:
                    return False
                self.put(position, facts)
            elif facts == record.END_OF_SEGMENT:
                if segment_end > limit:
                    return False
                self.position = segment_end
                return segment_end < limit
            elif facts == record.INVALID and record.declared_end(buffer, at, position) <= limit:
                raise StoreCorrupted(position, limit, "no whole valid record is here")
            else:
                return False  # the log of a slave, or the buffer, has only a part of the record
        return True

    def _put_plain(self, buffer: Buffer, start: int, end: int, records_max: int) -> int:
        """Make the entries of the next plain records, see nativepath.native. Returns how many records got entries."""
        assert self._plain is not None
        end = min(end, start + len(buffer))
        if end - self.position < record.RECORD_SIZE_MIN:
            return 0
        index = self._index
        taken, position, store_timestamp, indexed = self._plain.put(
            buffer, self.position - start, end - start, self.position, self.lead, records_max,
            None if index is None else index.newest, NEVER if index is None else index.phy_end, self._grown,
        )  # fmt: skip
        if taken:
            self.position, self.store_timestamp = position, store_timestamp
            if index is not None and indexed is not None:
                index.newest_grew(*indexed)
        return taken

    def _put_known(self, limit: int, records_max: int) -> int:
        """Make the entries of the next records while their facts are known. Returns how many records got entries."""
        known, count = self.known, 0
        while known and count < records_max and self._new_queues < NEW_QUEUES_MAX:
            position, facts = known[0]
            if position > self.position or position + facts.size > limit:
                break
            if position == self.position:
                self.put(position, facts)
                count += 1
            known.popleft()
        return count

    def put(self, position: int, facts: QueueFacts) -> None:
        """Make the entries of the record at `position`, which is the next to dispatch. Raises QueueOffsetGap, with nothing
        done, if the record skips queue offsets and gaps are refused."""
        size, topic, queue_id, queue_offset, sys_flag, store_timestamp, properties = facts
        tag, unique, keys = dispatched_values(properties)
        if record.counts_in_queue(sys_flag):
            queue = self._queues.get(topic, queue_id)
            if queue is None:
                self._log_skip(topic, queue_id, position, queue_offset, 0)
            else:
                end = queue.max_queue_offset
                if queue_offset > end and position >= queue.phy_end and (end or not self.log_min):
                    self._skip(topic, queue_id, position, queue_offset, end)
                if not end:
                    self._new_queues += 1
                tags_code = self._tags.code(topic, tag, properties, store_timestamp)
                if queue.append(queue_offset, position, size, tags_code):
                    self._grown[topic, queue_id] = queue.max_queue_offset
        if self._index is not None:
            self._index.put(position, facts, tag, unique, keys)
        self.position = position + size
        self.store_timestamp = store_timestamp

    def put_many(self, records: Records) -> int:
        """Make the entries of `records`, which are the next to dispatch, up to the first that is not plain. Returns how many
        records got entries. Raises OSError, with nothing done, if the disk is full."""
        assert self.bulk is not None
        taken = self.bulk.put(records)
        if taken.records:
            for topic, queue_id, end in taken.grown:
                self._grown[topic, queue_id] = end
            self.position, self.store_timestamp = taken.end_offset, taken.store_timestamp
        return taken.records

    def _skip(self, topic: bytes, queue_id: int, position: int, queue_offset: int, expected: int) -> None:
        if self.refuses_gaps:
            raise QueueOffsetGap(topic.decode(), queue_id, position, queue_offset, expected)
        self._log_skip(topic, queue_id, position, queue_offset, expected)

    def _log_skip(self, topic: bytes, queue_id: int, position: int, queue_offset: int, expected: int) -> None:
        self.skips += 1
        if (topic, queue_id) not in self._logged_skips:
            self._logged_skips.add((topic, queue_id))
            logger.warning(
                "queue offset skips ahead, or its queue can have no folder; dispatch continues",
                extra=fields(
                    topic=topic.decode("utf-8", "replace"),
                    queue=queue_id,
                    at=position,
                    found=queue_offset,
                    due=expected,
                    hint="if files of this queue were lost, stop the broker, delete the folder consumequeue and start it: "
                    "queues are rebuilt from the log",
                ),
            )

    def index(self, position: int, facts: QueueFacts) -> None:
        """Index the record at `position`, unless it is indexed."""
        if self._index is not None:
            self._index.put(position, facts, *dispatched_values(facts.properties))

    def index_many(self, records: Records) -> int:
        """Index these records, all below `position`, that are not indexed yet, as far as they are plain. Returns how many are
        indexed then."""
        assert self.bulk is not None
        count = self.bulk.index(records)
        if count:
            self.store_timestamp = records.first(count).last_store_timestamp
        return count

    def note_grown(self) -> None:
        """Pass the grown queues to QueueTable, which syncs them."""
        self._queues.grew(self._grown)

    def take_grown(self) -> list[QueueGrew]:
        """The queues that grew since the last call, each once."""
        if not self._grown:
            return []
        self._queues.grew(self._grown)
        grown = [QueueGrew(topic.decode(), queue_id, end) for (topic, queue_id), end in self._grown.items()]
        self._grown.clear()
        return grown
