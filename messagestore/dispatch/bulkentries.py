"""Make the queue and index entries of thousands of records at once from the bytes of the log.

Invariant: a call makes exactly the entries that `Dispatcher.put` makes one by one, or none. It stops at the first record that
is not plain. A plain record is whole, has the next offset of a queue that has begun, and its keys fit into the newest index
file. So no call begins a queue, bridges a gap or makes an index file."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from messagestore.bulk.layouts import QUEUE_ENTRIES
from messagestore.bulk.records import ROOM_BYTES, ROWS_MAX, QueueRows, Records, records_in
from messagestore.bulk.texts import Texts, Values, key_hashes
from messagestore.index.file import U32_MASK, longer_hash, topic_prefix_hash
from messagestore.index.table import TAG_LED, IndexTable
from messagestore.properties import KEYS_NAME, TAGS_NAME, UNIQ_KEY_NAME, dispatched_values
from messagestore.queues.consumequeue import ConsumeQueue
from messagestore.queues.table import QueueTable
from messagestore.queues.tagcodes import TagCodes
from messagestore.record import PREFIX, PROPERTIES_LENGTH, TRANSACTION_MASK, TRANSACTION_ROLLBACK
from messagestore.systemtopics import SCHEDULE_TOPIC

PIECE_BYTES_MAX = 4 << 20
PIECE_BYTES_MIN = 64 << 10
RECORDS_MIN = 64
"""For fewer records the calls into NumPy are not worthwhile."""
RECORD_BYTES_MAX = 32 << 10
"""For larger records copying is not worthwhile."""
QUEUE_ROWS_MIN = 2
"""The least average of rows per queue in a call, because the work for each queue is done in Python."""
RESTS_MAX = 15
UNKNOWN = -(1 << 62)
SCHEDULE_TOPIC_BYTES = SCHEDULE_TOPIC.encode()


class TakenRecords(NamedTuple):
    """The records that got entries, up to `end_offset` of the log. `grown` has (topic, queue id, new end) of grown queues."""

    records: int
    end_offset: int
    store_timestamp: int
    grown: list[tuple[bytes, int, int]]


NOTHING = TakenRecords(0, 0, 0, [])


class Terms(NamedTuple):
    """Index entries of all rows in order: hashes of keys and tags, and the number of hashes of each row."""

    hashes: NDArray[np.int64]
    counts: NDArray[np.int64]


class BulkEntries:
    def __init__(self, queues: QueueTable, index: IndexTable | None, tags: TagCodes) -> None:
        self.records_min = RECORDS_MIN
        self.queue_rows_min = QUEUE_ROWS_MIN
        self._queues = queues
        self._index = index
        self._tags = tags
        self._buffer = bytearray()
        self._piece_bytes = PIECE_BYTES_MAX // 4
        self._rests = 0  # calls to skip, because the last one found few records
        self._rest = 0

    def records_of(self, view: memoryview | bytes, offset: int) -> Records | None:
        """The records at the beginning of `view`, or None if they are too few or too large. The first byte of `view` is at
        `offset`, and `view` ends in the same segment. The records are valid until the next call. A `bytes` view is immutable
        and not copied; its last records serve as the room that must follow the rows."""
        if len(view) < PREFIX.size:
            return None
        size = PREFIX.unpack_from(view)[0]
        if not 0 < size <= RECORD_BYTES_MAX or len(view) < self.records_min * size:
            return None
        if self._rests:
            self._rests -= 1
            return None
        held = min(len(view), self._piece_bytes)
        if isinstance(view, bytes) and len(view) > 2 * ROOM_BYTES:
            records = records_in(view, min(len(view) - ROOM_BYTES, held), offset)
        else:
            if len(self._buffer) < held + ROOM_BYTES:
                self._buffer = bytearray(held + ROOM_BYTES)
            self._buffer[:held] = view[:held]
            records = records_in(self._buffer, held, offset)
        if not len(records) or len(records) < self.records_min:
            return None
        wanted = int(records.columns.ends[-1]) // len(records) * ROWS_MAX
        self._piece_bytes = min(max(wanted, PIECE_BYTES_MIN), PIECE_BYTES_MAX)
        return records

    def put(self, records: Records) -> TakenRecords:
        """Make the records' entries. Raises OSError (ENOSPC) before any entry is made."""
        taken = self._put(records)
        self._rest = 0 if taken.records * 2 >= len(records) else min(2 * self._rest + 1, RESTS_MAX)
        self._rests = self._rest
        return taken

    def _put(self, records: Records) -> TakenRecords:
        while len(records) and len(records) >= self.records_min:
            by_queue = records.by_queue()
            if len(by_queue.queues) * self.queue_rows_min > len(records):
                break
            chosen = ChosenRecords(records, by_queue, self._queues)
            if chosen.plain < len(records):
                records = records.first(chosen.plain)
                continue
            texts = Texts(
                records.buffer, records.columns.topic_ends + PROPERTIES_LENGTH.size, records.columns.ends
            )
            tags = texts.values(TAGS_NAME)
            terms = self._terms(records, by_queue, texts, tags)
            fitting = self._fitting(terms)
            if fitting < len(records):
                records = records.first(fitting)
                continue
            tags_codes = self._tags_codes(records, by_queue, tags)
            chosen.make_room()
            self._put_terms(records, terms)
            grown = chosen.extend(records, tags_codes)
            return TakenRecords(len(records), records.end_offset, records.last_store_timestamp, grown)
        return NOTHING

    def are_listed(self, records: Records) -> bool:
        """Whether each record that belongs in a queue has a queue offset below that queue's end."""
        by_queue = records.by_queue()
        offsets = np.where(records.in_queues, records.columns.queue_offsets, UNKNOWN)[by_queue.rows]
        ends = np.array(
            [self._queues.end_of(topic, queue_id) for topic, queue_id in by_queue.queues], np.int64
        )
        return bool((np.maximum.reduceat(offsets, by_queue.firsts) < ends).all())

    def index(self, records: Records) -> int:
        """Index the records that are not indexed yet, as far as the newest file has room. Returns how many are indexed then.
        Raises OSError (ENOSPC)."""
        if self._index is None:
            return len(records)
        if not len(records) or int(records.physical_offsets[-1]) < self._index.phy_end:
            return len(records)
        texts = Texts(
            records.buffer, records.columns.topic_ends + PROPERTIES_LENGTH.size, records.columns.ends
        )
        terms = self._terms(records, records.by_queue(), texts, texts.values(TAGS_NAME))
        fitting = self._fitting(terms)
        if fitting < len(records):
            return self.index(records.first(fitting)) if fitting >= max(self.records_min, 1) else 0
        self._put_terms(records, terms)
        return len(records)

    def _terms(self, records: Records, by_queue: QueueRows, texts: Texts, tags: Values) -> Terms:
        rows = len(records)
        if self._index is None:
            return Terms(np.empty(0, np.int64), np.zeros(rows, np.int64))
        wanted = records.columns.sys_flags & TRANSACTION_MASK != TRANSACTION_ROLLBACK
        wanted &= records.physical_offsets >= self._index.phy_end
        unique, keys = texts.values(UNIQ_KEY_NAME), texts.values(KEYS_NAME, one_word=True)
        by_hand = unique.odd | keys.odd | tags.odd
        odd = np.flatnonzero(by_hand & wanted)
        plain = wanted & ~by_hand
        has_unique, has_keys, has_tag = unique.given & plain, keys.given & plain, tags.given & plain
        counts = has_unique.astype(np.int64) + has_keys + has_tag
        own = [
            self._index.hashes_of(records.topic(row), *dispatched_values(records.properties(row)))
            for row in odd.tolist()
        ]
        counts[odd] = [len(hashes) for hashes in own]
        firsts = np.cumsum(counts) - counts
        hashes = np.empty(int(counts.sum()), np.int64)
        of_topics = [topic_prefix_hash(topic) & U32_MASK for topic, _ in by_queue.queues]
        prefixes = _of_each_row(by_queue, of_topics, rows)
        self._fill(hashes, firsts, has_unique, unique, prefixes)
        self._fill(hashes, firsts + has_unique, has_keys, keys, prefixes)
        of_tags = [longer_hash(value, TAG_LED) for value in of_topics]
        self._fill(
            hashes, firsts + has_unique + has_keys, has_tag, tags, _of_each_row(by_queue, of_tags, rows)
        )
        for row, made in zip(odd.tolist(), own, strict=True):
            hashes[firsts[row] : firsts[row] + len(made)] = made
        return Terms(hashes, counts)

    @staticmethod
    def _fill(
        hashes: NDArray[np.int64],
        places: NDArray[np.int64],
        has: NDArray[np.bool_],
        values: Values,
        prefixes: NDArray[np.uint32],
    ) -> None:
        if has.any():
            hashes[places[has]] = key_hashes(prefixes, values)[has]

    def _fitting(self, terms: Terms) -> int:
        """The number of rows before the first whose keys do not fit into the newest index file."""
        if self._index is None:
            return len(terms.counts)
        return int(np.searchsorted(np.cumsum(terms.counts), self._index.places_left, "right"))

    def _put_terms(self, records: Records, terms: Terms) -> None:
        if self._index is not None and len(terms.hashes):
            self._index.put_many(
                terms.hashes,
                np.repeat(records.physical_offsets, terms.counts),
                np.repeat(records.columns.store_timestamps, terms.counts),
            )

    def _tags_codes(self, records: Records, by_queue: QueueRows, tags: Values) -> NDArray[np.int64]:
        codes = tags.hashes.view(np.int32).astype(np.int64)
        codes[~tags.given] = 0
        by_hand = tags.odd
        scheduled = [topic == SCHEDULE_TOPIC_BYTES for topic, _ in by_queue.queues]
        if any(scheduled):
            by_hand = by_hand | _of_each_row(by_queue, scheduled, len(records)).astype(np.bool_)
        for row in np.flatnonzero(by_hand).tolist():
            properties = records.properties(row)
            codes[row] = self._tags.code(
                records.topic(row),
                dispatched_values(properties)[0],
                properties,
                int(records.columns.store_timestamps[row]),
            )
        return codes


class ChosenRecords:
    """The consume queues of records. `plain` is the number of records, from the first on, that get plain entries in them."""

    def __init__(self, records: Records, by_queue: QueueRows, table: QueueTable) -> None:
        rows, firsts = by_queue.rows, by_queue.firsts
        group = np.repeat(np.arange(len(firsts)), np.diff(np.append(firsts, len(rows))))
        in_queue = records.in_queues[rows]
        if not in_queue.all():
            rows, group = rows[in_queue], group[in_queue]
            firsts = np.searchsorted(group, np.arange(len(firsts)))
        self._rows = rows
        self._bounds = np.append(firsts, len(rows)).tolist()
        self._queues = [table.begun(topic, queue_id) for topic, queue_id in by_queue.queues]
        self._keys = by_queue.queues
        ends = np.array(
            [UNKNOWN if queue is None else queue.max_queue_offset for queue in self._queues], np.int64
        )
        phy_ends = np.array([0 if queue is None else queue.phy_end for queue in self._queues], np.int64)
        due = ends[group] + np.arange(len(rows)) - firsts[group]
        wrong = (records.columns.queue_offsets[rows] != due) | (
            records.physical_offsets[rows] < phy_ends[group]
        )
        self.plain = int(rows[wrong].min()) if wrong.any() else len(records)

    def _parts(self) -> list[tuple[ConsumeQueue, tuple[bytes, int], int, int]]:
        found = []
        for queue, key, begin, end in zip(
            self._queues, self._keys, self._bounds, self._bounds[1:], strict=False
        ):
            if begin < end:
                assert queue is not None, "its records are not plain"
                found.append((queue, key, begin, end))
        return found

    def make_room(self) -> None:
        """Reserve room for the entries. Raises OSError (ENOSPC) before any entry is made."""
        for queue, _, begin, end in self._parts():
            queue.make_room(end - begin)

    def extend(self, records: Records, tags_codes: NDArray[np.int64]) -> list[tuple[bytes, int, int]]:
        """Add the entries; there must be room."""
        rows = self._rows
        starts, ends = records.columns.starts[rows], records.columns.ends[rows]
        made = np.empty(len(rows), QUEUE_ENTRIES)
        made["physical_offset"], made["size"], made["tags_code"] = (
            starts + records.offset,
            ends - starts,
            tags_codes[rows],
        )
        content, phy_ends = made.view(np.uint8).data, ends + records.offset
        grown = []
        for queue, (topic, queue_id), begin, end in self._parts():
            size = QUEUE_ENTRIES.itemsize
            queue.extend(content[begin * size : end * size], int(phy_ends[end - 1]))
            grown.append((topic, queue_id, queue.max_queue_offset))
        return grown


def _of_each_row(by_queue: QueueRows, values: list[int] | list[bool], count: int) -> NDArray[np.uint32]:
    """The value of each row's queue."""
    out = np.empty(count, np.uint32)
    out[by_queue.rows] = np.repeat(
        np.array(values, np.uint32), np.diff(np.append(by_queue.firsts, len(by_queue.rows)))
    )
    return out
