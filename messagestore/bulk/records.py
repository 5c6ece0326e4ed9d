"""The records of a piece of log as columns, with a row for each record.

Invariant: each row is a record that `record.queue_facts` finds whole, with the same facts. It begins where the record of the
row before ends. The rows end at the first record that is not whole, or at the end of the piece. Pure."""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from messagestore.bulk.lockstep import boundaries_in_step
from messagestore.record import (
    FIXED_FIELDS,
    FIXED_PARTS,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    PREFIX,
    PROPERTIES_LENGTH,
    RECORD_SIZE_MIN,
    SYS_FLAG_AT,
    TOPIC_BYTES_MAX,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
)
from messagestore.recordcrc import CRC_MASK, contradicts

ROWS_MAX = 4096
ROOM_BYTES = 1 << 10
"""Bytes after the piece in its buffer. They may be read with the last records, but are never used."""
SAMPLE_RECORDS = 32
IN_STEP_RECORDS_MIN = 1024
"""Fewer records are cheaper to walk one by one."""
HOSTS_SHIFT, HOSTS_MASK = 4, 3
WORD_BYTES = 8
TOPIC_WORDS = -(-TOPIC_BYTES_MAX // WORD_BYTES)
TOPIC_MASKS = np.array(
    [
        [(1 << 8 * min(max(size - WORD_BYTES * word, 0), WORD_BYTES)) - 1 for word in range(TOPIC_WORDS)]
        for size in range(TOPIC_BYTES_MAX + 1)
    ],
    np.uint64,
)
"""By the length of a topic: the mask of the topic's bytes in its last word."""
MIX = np.uint64(0x9E3779B97F4A7C15)
MIX_SHIFT = np.uint64(29)


def _places(wanted: str) -> NDArray[np.int64]:
    """A field's position, by the two bits that say which hosts are IPv6."""
    places = []
    for hosts in range(4):
        at = 0
        for name, kind in FIXED_FIELDS:
            if name == wanted:
                break
            ipv6 = hosts & {"born_host": 1, "store_host": 2}.get(name, 0)
            at += {"i": 4, "I": 4, "q": 8, "host": 20 if ipv6 else 8}[kind]
        places.append(at)
    return np.array(places)


BODY_CRC_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT = (
    int(_places(name)[0]) for name in ("body_crc", "queue_id", "queue_offset")
)
STORE_TIMESTAMP_AT, BODY_LENGTH_AT = _places("store_timestamp"), _places("body_length")
FIXED_BYTES = np.array([part.size for part in FIXED_PARTS])


class Columns(NamedTuple):
    """Positions count from the buffer's beginning; `body_end` is the position of the topic's length."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    sys_flags: NDArray[np.int64]
    queue_ids: NDArray[np.int64]
    queue_offsets: NDArray[np.int64]
    store_timestamps: NDArray[np.int64]
    body_crcs: NDArray[np.int64]
    body_starts: NDArray[np.int64]
    body_ends: NDArray[np.int64]
    topic_starts: NDArray[np.int64]
    topic_ends: NDArray[np.int64]


class QueueRows(NamedTuple):
    """The rows grouped by queue, in order within each queue."""

    rows: NDArray[np.int64]
    firsts: NDArray[np.int64]
    """First position of each queue in `rows`."""
    queues: list[tuple[bytes, int]]
    """Topic and queue id, ordered by each queue's first row."""


class Records:
    """`buffer` holds the records from log offset `offset` on, and at least ROOM_BYTES more."""

    def __init__(self, buffer: bytes | bytearray, offset: int, columns: Columns) -> None:
        self.buffer = buffer
        self.offset = offset
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns.starts)

    @property
    def end_offset(self) -> int:
        """The end of the last row; there must be rows."""
        return self.offset + int(self.columns.ends[-1])

    @property
    def last_store_timestamp(self) -> int:
        return int(self.columns.store_timestamps[-1])

    def starting_below(self, offset: int) -> int:
        """The number of rows that start below this log offset."""
        return int(np.searchsorted(self.columns.starts, offset - self.offset, "left"))

    def ending_by(self, offset: int) -> int:
        """The number of rows that end at or below this log offset."""
        return int(np.searchsorted(self.columns.ends, offset - self.offset, "right"))

    @property
    def physical_offsets(self) -> NDArray[np.int64]:
        return self.columns.starts + self.offset

    @property
    def in_queues(self) -> NDArray[np.bool_]:
        """Rows that have an entry in their queue (`record.counts_in_queue`)."""
        state = self.columns.sys_flags & TRANSACTION_MASK
        return np.isin(state, (0, TRANSACTION_COMMIT))

    def first(self, count: int) -> Records:
        return self.rows(0, count)

    def rows(self, begin: int, end: int) -> Records:
        """A slice of the rows; the buffer and its offset stay."""
        return Records(self.buffer, self.offset, Columns(*(column[begin:end] for column in self.columns)))

    def topic(self, row: int) -> bytes:
        return bytes(self.buffer[self.columns.topic_starts[row] : self.columns.topic_ends[row]])

    def properties(self, row: int) -> bytes:
        at = self.columns.topic_ends[row] + PROPERTIES_LENGTH.size
        return bytes(self.buffer[at : self.columns.ends[row]])

    def by_queue(self) -> QueueRows:
        """Group the rows by all bytes of the topics, not by a hash of them."""
        topics, sizes = self._topic_words()
        mixed = (self.columns.queue_ids.astype(np.uint64) * MIX) ^ sizes.astype(np.uint64)
        for word in topics.T:
            mixed = (mixed ^ word) * MIX
            mixed ^= mixed >> MIX_SHIFT
        rows = np.argsort(mixed, kind="stable")
        same = mixed[rows][1:] == mixed[rows][:-1]
        # queues whose topics share a hash are split into pieces, which stay in order
        same &= (topics[rows][1:] == topics[rows][:-1]).all(axis=1)
        for column in (sizes, self.columns.queue_ids):
            same &= column[rows][1:] == column[rows][:-1]
        firsts = np.append(0, np.flatnonzero(~same) + 1) if len(rows) else np.empty(0, np.int64)
        in_order = np.argsort(rows[firsts], kind="stable")
        if len(firsts) > 1:
            bounds = np.append(firsts, len(rows))
            counts = np.diff(bounds)[in_order]
            begins = np.cumsum(counts) - counts
            rows = rows[np.repeat(firsts[in_order] - begins, counts) + np.arange(len(rows))]
            firsts = begins
        ids = self.columns.queue_ids
        return QueueRows(rows, firsts, [(self.topic(row), int(ids[row])) for row in rows[firsts].tolist()])

    def _topic_words(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        starts = self.columns.topic_starts
        sizes = self.columns.topic_ends - starts
        words = -(-int(sizes.max(initial=1)) // WORD_BYTES)
        width = words * WORD_BYTES
        everywhere = np.ndarray(len(self.buffer) - width + 1, f"V{width}", self.buffer, 0, (1,))
        topics = everywhere[starts].view("<u8").astype(np.uint64).reshape(-1, words)
        return topics & TOPIC_MASKS[sizes, :words], sizes

    def intact_bodies(self) -> int:
        """The number of rows before the first whose body contradicts its CRC."""
        view, columns = memoryview(self.buffer), self.columns
        begins, ends = columns.body_starts.tolist(), columns.body_ends.tolist()
        found = np.array([crc32(view[begin:end]) for begin, end in zip(begins, ends, strict=True)], np.int64)
        wrong = (found & CRC_MASK != columns.body_crcs) & (columns.body_ends > columns.body_starts)
        return first_of(wrong)

    def intact_records(self) -> int:
        """The number of rows before the first that contradicts its record CRC."""
        columns = self.columns
        places = zip(columns.starts.tolist(), columns.topic_ends.tolist(), columns.ends.tolist(), strict=True)
        for row, (start, topic_end, end) in enumerate(places):
            if contradicts(self.buffer, start, end - start, end - topic_end - PROPERTIES_LENGTH.size):
                return row
        return len(self)

    def without_zeros(self) -> int:
        """The number of rows before the first with a zero in its topic or its properties."""
        find, columns = self.buffer.find, self.columns
        places = zip(
            columns.topic_starts.tolist(), columns.topic_ends.tolist(), columns.ends.tolist(), strict=True
        )
        for row, (begin, topic_end, end) in enumerate(places):
            if find(0, begin, topic_end) >= 0 or find(0, topic_end + PROPERTIES_LENGTH.size, end) >= 0:
                return row
        return len(self)


def records_in(buffer: bytes | bytearray, held: int, offset: int) -> Records:
    """At most ROWS_MAX records from the beginning of `buffer[:held]` on. `held` does not pass the segment's end, and the
    buffer has ROOM_BYTES more."""
    assert held + ROOM_BYTES <= len(buffer)
    bounds = boundaries(buffer, held, offset)[: ROWS_MAX + 1]
    starts, ends = bounds[:-1], bounds[1:]
    numbers, longs = _at_every_byte(buffer, ">i4"), _at_every_byte(buffer, ">i8")
    shorts, data = _at_every_byte(buffer, ">u2"), np.frombuffer(buffer, np.uint8)

    def number(at: NDArray[np.int64]) -> NDArray[np.int64]:
        return numbers[at].astype(np.int64)

    sys_flags = number(starts + SYS_FLAG_AT)
    hosts = sys_flags >> HOSTS_SHIFT & HOSTS_MASK
    body_bytes = number(starts + BODY_LENGTH_AT[hosts])
    body_starts = starts + FIXED_BYTES[hosts]
    body_ends = body_starts + body_bytes
    is_v2 = data[starts + PREFIX.size - 1] == MAGIC_V2 & 0xFF
    topic_starts = body_ends + 1 + is_v2
    good = longs[starts + PHYSICAL_OFFSET_AT].astype(np.int64) == starts + offset
    good &= (body_bytes >= 0) & (topic_starts + PROPERTIES_LENGTH.size <= ends)
    safe = np.where(good, body_ends, 0)
    topic_bytes = np.where(is_v2, shorts[safe], data[safe]).astype(np.int64)
    topic_ends = topic_starts + topic_bytes
    good &= (topic_ends + PROPERTIES_LENGTH.size <= ends) & (topic_bytes <= TOPIC_BYTES_MAX)
    safe = np.where(good, topic_ends, 0)
    good &= topic_ends + PROPERTIES_LENGTH.size + shorts[safe] == ends
    count = first_of(~good)
    if count < len(starts):
        starts, ends, sys_flags, hosts = starts[:count], ends[:count], sys_flags[:count], hosts[:count]
        body_starts, body_ends = body_starts[:count], body_ends[:count]
        topic_starts, topic_ends = topic_starts[:count], topic_ends[:count]
    columns = Columns(
        starts, ends, sys_flags, number(starts + QUEUE_ID_AT), longs[starts + QUEUE_OFFSET_AT].astype(np.int64),
        longs[starts + STORE_TIMESTAMP_AT[hosts]].astype(np.int64), number(starts + BODY_CRC_AT) & 0xFFFFFFFF,
        body_starts, body_ends, topic_starts, topic_ends,
    )  # fmt: skip
    return Records(buffer, offset, columns)


def boundaries(buffer: bytes | bytearray, held: int, offset: int) -> NDArray[np.int64]:
    """Where consecutive apparent records begin, from the buffer's beginning on. The last value is the end of the last one."""
    places = _one_by_one(buffer, 0, held, SAMPLE_RECORDS)
    found = np.array(places, np.int64)
    if len(places) > SAMPLE_RECORDS:
        if held * SAMPLE_RECORDS >= IN_STEP_RECORDS_MIN * places[-1]:
            in_step = boundaries_in_step(buffer, held, offset, strip_bytes=places[-1], size_max=held)
            if in_step is not None:
                found = in_step
        rest = _one_by_one(buffer, int(found[-1]), held, ROWS_MAX)
        found = np.concatenate((found, np.array(rest[1:], np.int64)))
    return found


def _one_by_one(buffer: bytes | bytearray, at: int, held: int, count_max: int) -> list[int]:
    places, unpack = [at], PREFIX.unpack_from
    while len(places) <= count_max and at + PREFIX.size <= held:
        size, magic = unpack(buffer, at)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_SIZE_MIN or at + size > held:
            break
        at += size
        places.append(at)
    return places


def first_of(rows: NDArray[np.bool_]) -> int:
    """The first row that is set; the row count if none is."""
    return int(rows.argmax()) if rows.any() else len(rows)


def _at_every_byte(buffer: bytes | bytearray, kind: str) -> NDArray[np.int64]:
    size = np.dtype(kind).itemsize
    return np.ndarray(len(buffer) - size + 1, kind, buffer, 0, (1,))
