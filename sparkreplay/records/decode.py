"""Decodes the records of a chunk (some whole records in one buffer) to Arrow columns. Only requested columns are made, each as
a whole, and never an object per message.

Invariant: no result refers to the chunk's buffer. A record's lengths, place and magic are checked before any of its bytes
become a row. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from messagestore.record import MAGIC_V2, TRANSACTION_MASK
from messagestore.recordcrc import CRC_MASK, contradicts
from messagestore.systemtopics import SYSTEM_PREFIX, SYSTEM_TOPICS, is_system_topic
from sparkreplay.errors import LogCorrupted, NotText
from sparkreplay.records.bodies import decompressed
from sparkreplay.records.fixedparts import FixedParts
from sparkreplay.records.innerbatch import StoredRecord, has_batches, unwrapped
from sparkreplay.records.properties import RowProperties
from sparkreplay.records.rowfilter import RowFilter
from sparkreplay.records.schema import TIMESTAMP, arrow_schema

TRANSACTIONS = pa.array(["none", "prepared", "commit", "rollback"])
HEADER, BODY, TOPIC, PROPERTIES = 0, 1, 3, 5
"""Places among the six parts of a record: header, body, topic length, topic, properties length, properties."""
PARTS = 6
MILLISECONDS_MAX = (2**63 - 1) // 1000
"""A client's clock may have any value. A time that microseconds cannot hold becomes null."""
SYSTEM_TOPICS_BEGIN = np.isin(np.arange(256), [ord(topic[0]) for topic in (*SYSTEM_TOPICS, SYSTEM_PREFIX)])
"""For each byte, whether a system topic begins with it."""

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Selection:
    """The selected records of the log, and their selected columns."""

    columns: tuple[str, ...]
    topics: frozenset[str] | None = None
    queues: frozenset[int] | None = None
    committed_only: bool = True
    system_topics: bool = False
    check_crc: bool = False
    check_record_crc: bool = False
    decompress: bool = True
    broker_name: str = ""
    epochs: tuple[tuple[int, int], ...] = field(default=())
    row_filter: RowFilter | None = None


class RecordsBuffer(Protocol):
    """Whole records in one buffer, concatenated: a chunk of a walk, or records found by an index."""

    @property
    def data(self) -> NDArray[np.uint8]: ...

    @property
    def positions(self) -> Rows: ...

    @property
    def offsets(self) -> Rows:
        """Physical offsets."""


def decode_chunk(chunk: RecordsBuffer, selection: Selection, path: str) -> pa.RecordBatch:
    """The columns of a chunk. Raises LogCorrupted if a record's lengths, place or CRC are wrong, and NotText for a topic that
    is not UTF-8."""
    return messages_of(chunk, selection, path).batch()


def messages_of(chunk: RecordsBuffer, selection: Selection, path: str) -> ChunkColumns:
    """The columns of a chunk. Each message of an inner batch becomes a separate record. Raises what decode_chunk raises."""
    if has_batches(chunk.data, chunk.positions):
        stored = ChunkColumns(chunk, replace(selection, columns=(), row_filter=None), path)
        if len(stored.rows):
            messages = unwrapped(stored.chosen_records(), stored.offsets[stored.rows].tolist())
            checked = replace(selection, check_crc=False, check_record_crc=False)
            return ChunkColumns(messages, checked, path, messages.batch_places)
    return ChunkColumns(chunk, selection, path)


class ChunkColumns:
    """The columns of one chunk, each made when first requested."""

    def __init__(
        self, chunk: RecordsBuffer, selection: Selection, path: str, batch_places: Rows | None = None
    ) -> None:
        """`batch_places` are the indexes of records in inner batches, -1 for others."""
        self.chunk = chunk
        self.batch_places = batch_places
        self.selection = selection
        self.path = path
        self.ends = np.append(chunk.positions[1:], len(chunk.data))
        self.offsets = chunk.offsets
        self.fixed = FixedParts(chunk.data, chunk.positions, self.ends)
        self.fields: dict[str, NDArray[Any]] = {}
        self.require(~self.fixed.short, "the record is shorter than its header")
        self.find_parts()
        self.topics: pa.Array = None
        self.rows = self.chosen_rows()

    def offset_of(self, row: int) -> int:
        return int(self.offsets[row])

    def native(self, name: str) -> NDArray[Any]:
        """A number of the fixed part of every record, in the machine's byte order. Times are in ms."""
        if name not in self.fields:
            self.fields[name] = self.fixed.native(name)
        return self.fields[name]

    def find_parts(self) -> None:
        """Find body, topic and properties of each record. Their lengths must add up to the record's size."""
        data, positions, ends = self.chunk.data, self.chunk.positions, self.ends
        self.body_at = positions + self.fixed.sizes
        body_size = self.native("body_length").astype(np.int64)
        self.body_end = self.body_at + body_size
        self.require((body_size >= 0) & (self.body_end + 3 <= ends), "the body is longer than the record")
        wide = self.native("magic") == MAGIC_V2
        topic_size = data[self.body_end].astype(np.int64)
        self.topic_at = self.body_end + 1
        if wide.any():
            topic_size = np.where(wide, topic_size << 8 | data[self.topic_at], topic_size)
            self.topic_at = self.topic_at + wide
        self.topic_end = self.topic_at + topic_size
        self.require(self.topic_end + 2 <= ends, "the topic is longer than the record")
        properties_size = data[self.topic_end].astype(np.int64) << 8 | data[self.topic_end + 1]
        self.properties_at = self.topic_end + 2
        self.require(
            self.properties_at + properties_size == ends, "its parts do not add up to the record's size"
        )
        placed = self.native("physical_offset") == self.offsets
        self.require(placed, "the record names another physical offset")

    def require(self, good: NDArray[np.bool_], why: str) -> None:
        if not good.all():
            raise LogCorrupted(self.path, self.offset_of(int(np.argmin(good))), why)

    @cached_property
    def parts(self) -> pa.Array:
        """The consecutive parts of all records, as slices of the chunk."""
        bounds = np.empty(PARTS * len(self.ends) + 1, np.int32)
        starts = (
            self.chunk.positions, self.body_at, self.body_end, self.topic_at, self.topic_end, self.properties_at,
        )  # fmt: skip
        for place, start in enumerate(starts):
            bounds[place:-1:PARTS] = start
        bounds[-1] = self.ends[-1]
        return pa.Array.from_buffers(
            pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(self.chunk.data)]
        )

    def pieces(self, place: int, rows: Rows, *, spare: bool = False) -> pa.Array:
        """A copy of one part of each of `rows`. With `spare`, as many other bytes as a header has follow the last part."""
        places = rows * PARTS + place
        taken = self.parts.take(pa.array(np.append(places, HEADER) if spare else places))
        return taken.slice(0, len(rows))

    def text(self, place: int, rows: Rows, *, spare: bool = False) -> pa.Array:
        """The parts as strings. Only parts with bytes above 127 are checked. Raises ArrowInvalid for invalid UTF-8."""
        pieces = self.pieces(place, rows, spare=spare)
        _, bounds, data = pieces.buffers()
        size = int(np.frombuffer(bounds, np.int32, len(rows) + 1)[-1]) if len(rows) else 0
        if size == 0 or np.frombuffer(data, np.int8, size).min() >= 0:
            return pa.Array.from_buffers(pa.string(), len(rows), pieces.buffers())
        return pieces.cast(pa.string())

    def chosen_rows(self) -> Rows:
        """The selected rows, whose CRCs are checked."""
        selection = self.selection
        every = rows = np.arange(len(self.ends), dtype=np.int64)
        if selection.committed_only:
            kind = self.native("sys_flag") & TRANSACTION_MASK
            rows = narrowed(rows, (kind == 0) | (kind == 8))
        if selection.queues is not None:
            rows = narrowed(rows, np.isin(self.native("queue_id")[rows], list(selection.queues)))
        self.topics = topics = self.topics_of(rows)
        keep: pa.Array | None = None
        if selection.topics is not None:
            keep = pc.is_in(topics, pa.array(sorted(selection.topics), pa.string()))
        elif not selection.system_topics:
            hidden = self.system_topics(rows)
            if hidden:
                keep = pc.invert(pc.is_in(topics, pa.array(hidden, pa.string())))
        if keep is not None:
            rows = narrowed(rows, np.asarray(keep))
            self.topics = topics.filter(keep)
        if selection.row_filter is not None:
            kept = selection.row_filter.choose(self, rows)
            if kept is not rows:
                rows = kept
                self.topics = self.topics_of(rows)
        if selection.check_crc:
            self.check_crc(rows)
        if selection.check_record_crc:
            self.check_record_crc(rows)
        self.are_all = rows is every
        return rows

    def system_topics(self, rows: Rows) -> list[str]:
        """The system topics among the topics of `rows`. Most topics are excluded by their first letter."""
        suspects = SYSTEM_TOPICS_BEGIN[self.chunk.data[self.topic_at[rows]]]
        if not suspects.any():
            return []
        names = self.topics.filter(pa.array(suspects)).unique().to_pylist()
        return [name for name in names if is_system_topic(name)]

    def topics_of(self, rows: Rows) -> pa.Array:
        """The topic of each of `rows`. Raises NotText."""
        try:
            return self.text(TOPIC, rows)
        except pa.ArrowInvalid as error:
            for row, piece in zip(rows.tolist(), self.pieces(TOPIC, rows), strict=True):
                try:
                    piece.as_py().decode()
                except UnicodeDecodeError:
                    raise NotText(self.path, self.offset_of(row)) from error
            raise

    def check_crc(self, rows: Rows) -> None:
        view = self.chunk.data.data
        bodies = zip(
            rows.tolist(),
            self.body_at[rows].tolist(),
            self.body_end[rows].tolist(),
            self.native("body_crc")[rows].tolist(),
            strict=True,
        )
        for row, start, end, stored in bodies:
            if end > start and crc32(view[start:end]) & CRC_MASK != stored:
                raise LogCorrupted(self.path, self.offset_of(row), "the body's CRC differs")

    def check_record_crc(self, rows: Rows) -> None:
        """Check the record CRCs (see `recordcrc`) of records that have one."""
        view = self.chunk.data.data
        places = zip(
            rows.tolist(),
            self.chunk.positions[rows].tolist(),
            self.properties_at[rows].tolist(),
            self.ends[rows].tolist(),
            strict=True,
        )
        for row, start, properties_at, end in places:
            if contradicts(view, start, end - start, end - properties_at):
                raise LogCorrupted(self.path, self.offset_of(row), "the record's own CRC differs")

    def in_batches(self) -> NDArray[np.bool_]:
        """Which of the chosen rows are messages of inner batches."""
        return (
            np.zeros(len(self.rows), np.bool_)
            if self.batch_places is None
            else self.picked(self.batch_places) >= 0
        )

    @property
    def has_batches(self) -> bool:
        return has_batches(self.chunk.data, self.chunk.positions)

    def chosen_records(self) -> list[StoredRecord]:
        view = self.chunk.data.data
        rows = self.rows
        columns = (self.chunk.positions, self.ends, self.body_at, self.body_end, self.properties_at)
        found = zip(
            *(column[rows].tolist() for column in columns),
            self.native("sys_flag")[rows].tolist(),
            strict=True,
        )
        return [
            StoredRecord(view[at:end], body_at - at, body_end - at, properties_at - at, sys_flag)
            for at, end, body_at, body_end, properties_at, sys_flag in found
        ]

    def picked(self, values: NDArray[Any]) -> NDArray[Any]:
        """The values of the chosen rows."""
        return values if self.are_all else values[self.rows]

    @cached_property
    def property_pieces(self) -> RowProperties:
        try:
            texts = self.text(PROPERTIES, self.rows, spare=True)
        except pa.ArrowInvalid:  # a client's invalid UTF-8 is replaced, as by Java's consumers
            stored = self.pieces(PROPERTIES, self.rows).to_pylist()
            texts = pa.array([properties.decode("utf-8", "replace") for properties in stored], pa.string())
        return RowProperties(texts)

    def numbers(self, name: str) -> pa.Array:
        return pa.array(self.picked(self.native(name)))

    def times(self, name: str) -> pa.Array:
        times = self.picked(self.native(name))
        tame = len(times) == 0 or (times.max() <= MILLISECONDS_MAX and times.min() >= -MILLISECONDS_MAX)
        wild = None if tame else (times > MILLISECONDS_MAX) | (times < -MILLISECONDS_MAX)
        return pa.array(times * 1000, mask=wild).view(TIMESTAMP)

    def hosts(self, name: str) -> pa.Array:
        found = self.fixed.hosts(name)
        return found if self.are_all else found.take(pa.array(self.rows))

    def epochs(self) -> pa.Array:
        starts = np.array([start for _, start in self.selection.epochs], np.int64)
        numbers = np.array([-1, *(epoch for epoch, _ in self.selection.epochs)], np.int32)
        first, last = np.searchsorted(starts, self.offsets[[0, -1]], "right")
        if first == last:
            return pa.array(np.full(len(self.rows), numbers[first]))
        return pa.array(numbers[np.searchsorted(starts, self.picked(self.offsets), "right")])

    def body(self) -> pa.Array:
        bodies = self.pieces(BODY, self.rows)
        if not self.selection.decompress:
            return bodies
        return decompressed(bodies, self.picked(self.native("sys_flag")), self.where)

    def row_ids(self) -> pa.Array:
        """`broker@physical offset`; a message in a batch adds `#` and its index."""
        name = pa.scalar(f"{self.selection.broker_name}@")
        offsets = pa.array(self.picked(self.offsets)).cast(pa.string())
        ids = pc.binary_join_element_wise(name, offsets, "")
        if self.batch_places is None:
            return ids
        numbers = self.picked(self.batch_places)
        batched = pc.binary_join_element_wise(ids, pa.array(numbers).cast(pa.string()), "#")
        return pc.if_else(pa.array(numbers >= 0), batched, ids)

    def where(self, place: int) -> tuple[str, int]:
        return self.path, self.offset_of(int(self.rows[place]))

    def batch(self) -> pa.RecordBatch:
        names = self.selection.columns
        columns = [MAKERS[name](self) for name in names]
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(names))


def repeated(text: str, count: int) -> pa.Array:
    """A constant column. Chunks of about the same length share one array."""
    return at_least(text, 1 << count.bit_length()).slice(0, count)


@lru_cache(maxsize=4)
def at_least(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def narrowed(rows: Rows, keep: NDArray[np.bool_]) -> Rows:
    return rows if keep.all() else rows[keep]


MAKERS: dict[str, Callable[[ChunkColumns], pa.Array]] = {
    "topic": lambda c: c.topics,
    "queue_id": lambda c: c.numbers("queue_id"),
    "queue_offset": lambda c: c.numbers("queue_offset"),
    "tags": lambda c: c.property_pieces.column("TAGS"),
    "keys": lambda c: c.property_pieces.column("KEYS"),
    "msg_id": lambda c: c.property_pieces.column("UNIQ_KEY"),
    "body": lambda c: c.body(),
    "properties": lambda c: c.property_pieces.map(),
    "properties_raw": lambda c: c.pieces(PROPERTIES, c.rows),
    "born_timestamp": lambda c: c.times("born_timestamp"),
    "store_timestamp": lambda c: c.times("store_timestamp"),
    "born_host": lambda c: c.hosts("born_host"),
    "store_host": lambda c: c.hosts("store_host"),
    "flag": lambda c: c.numbers("flag"),
    "sys_flag": lambda c: c.numbers("sys_flag"),
    "transaction": lambda c: TRANSACTIONS.take(
        pa.array((c.picked(c.native("sys_flag")) & TRANSACTION_MASK) >> 2)
    ),
    "reconsume_times": lambda c: c.numbers("reconsume_times"),
    "prepared_transaction_offset": lambda c: c.numbers("prepared_transaction_offset"),
    "physical_offset": lambda c: c.numbers("physical_offset"),
    "store_size": lambda c: pa.array(c.picked(c.native("total_size"))),
    "body_crc": lambda c: pa.array(c.picked(c.native("body_crc")).view(np.int32)),
    "epoch": lambda c: c.epochs(),
    "row_id": lambda c: c.row_ids(),
    "broker_name": lambda c: repeated(c.selection.broker_name, len(c.rows)),
}
