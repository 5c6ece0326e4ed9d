"""Rows found through the consume queues, so that only records of the wanted topics are read.

Invariant: the rows are the same, in the same order, as if every record of the log were read (a walk). Entries are used only
below `indexed_end`, a record boundary up to which every record has its entry on disk. Above `indexed_end` the log is walked.
Each entry must lead to a record with the entry's topic, queue and queue offset. The index serves only topics that the request
names and that have queues. For other topics the log is walked, so that a deleted topic keeps its rows. One difference remains:
if a topic was deleted and created again, only a walk finds its older messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from messagestore.checkpoint import decode_checkpoint
from messagestore.record import MAGIC_V1, MAGIC_V2, store_timestamp
from sparkreplay.errors import IndexUnusable, LogCorrupted
from sparkreplay.read.plan import bytes_at, record_at_or_after
from sparkreplay.read.queueindex import indexed_topics, queues_of
from sparkreplay.records.decode import ChunkColumns, Selection, decode_chunk
from sparkreplay.records.walk import CHUNK_BYTES, HEAP_HINT_BYTES, Stretch, chunks_of
from sparkreplay.store.compact import without_gaps
from sparkreplay.store.files import Files, OpenFile
from sparkreplay.store.segments import open_segment
from sparkreplay.store.snapshot import Segment, StoreSnapshot

GAP_BYTES_MAX = 12 << 10
"""Wanted records that are closer together are read with the bytes between them. Wider gaps are skipped."""
PROBE_BYTES = 64 << 10
HEADER_BYTES_MAX = 112
IDENTITY = np.dtype(
    {
        "names": ["total_size", "magic", "queue_id", "queue_offset"],
        "formats": [">i4", ">u4", ">i4", ">i8"],
        "offsets": [0, 4, 12, 20],
        "itemsize": 28,
    }
)
"""A record's fields before the physical offset."""


@dataclass(frozen=True)
class IndexEntries:
    """The entries of some records, in log order. `queues` are indexes into `names`, which are (topic, queue id)."""

    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    queues: NDArray[np.int64]
    queue_offsets: NDArray[np.int64]
    names: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class PickedRecords:
    """Some records of a segment, concatenated, and the physical offset of each."""

    data: NDArray[np.uint8]
    positions: NDArray[np.int64]
    offsets: NDArray[np.int64]


def indexed_end(store: StoreSnapshot, end: int) -> int:
    """The end of the usable index, which is at most `end`. Every record that ends at or below it has its entry.

    Dispatch follows the log, so all records before a record with an entry have entries. But a power cut may lose the last
    entries. So if the broker's file `abort` exists (as it does while the broker runs), an entry counts only if its record is
    older than the checkpoint's timestamps. A broker's recovery uses the same rule. Store times are assumed to grow along the
    log."""
    limit = end
    if any(entry.name == "abort" for entry in store.files.entries("")):
        limit = safely_stored(store, end, decode_checkpoint(store.files.read("checkpoint")).min_timestamp)
    queues = list(queues_of(store.files))
    for queue in queues:
        if queue.first_queue_offset and not store.min_offset:
            raise IndexUnusable(
                queue.path, f"begins at entry {queue.first_queue_offset} only, though the log is whole"
            )
    ends = [queue.end_below(limit) for queue in queues]
    return max([*ends, min(store.min_offset, end)])


def safely_stored(store: StoreSnapshot, end: int, time_ms: int) -> int:
    """An offset, at most `end`, before which all records were stored at or before `time_ms`."""
    limit = min(store.min_offset, end)
    for segment in store.segments:
        low, high = segment.start_offset, min(end, segment.end_offset)
        if low >= high:
            break
        file = open_segment(store.files, segment)
        try:
            if not stored_by(file, segment, low, end, time_ms):
                break
            while high - low > PROBE_BYTES:
                middle = (low + high) // 2
                if stored_by(file, segment, middle, end, time_ms):
                    low = middle
                else:
                    high = middle
        finally:
            file.close()
        limit = low
    return limit


def stored_by(file: OpenFile, segment: Segment, offset: int, end: int, time_ms: int) -> bool:
    """Whether the first record at or after `offset` was stored at or before `time_ms`."""
    at = record_at_or_after(file, segment, offset, end)
    if at is None:
        return False
    record_at = at + segment.framing.lead_bytes - segment.start_offset
    return store_timestamp(bytes_at(file, record_at, HEADER_BYTES_MAX), 0) <= time_ms


def positions_of(
    files: Files, topics: frozenset[str] | None, queue_ids: frozenset[int] | None, start: int, end: int
) -> IndexEntries:
    """The entries of records that begin in [start, end). `None` means all topics or all queue ids."""
    parts = []
    for queue in queues_of(files, topics, queue_ids):
        first, last = queue.count_below(start), queue.count_below(end)
        if last > first:
            parts.append((*queue.checked(first, last), (queue.topic, queue.queue_id)))
    nothing = np.empty(0, np.int64)
    offsets, sizes, queue_offsets = (
        np.concatenate([nothing, *(part[column] for part in parts)]) for column in range(3)
    )
    queues = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
    order = np.argsort(offsets, kind="stable")
    names = tuple(part[3] for part in parts)
    return IndexEntries(offsets[order], sizes[order], queues[order], queue_offsets[order], names)


def read_indexed(
    files: Files, stretch: Stretch, selection: Selection, index_end: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a stretch. Up to `index_end`, rows of named topics are found through the index.

    Raises IndexUnusable if an entry and its record differ, and the errors of a walk."""
    assert selection.committed_only, "prepared and rolled back records have no entries"
    if selection.topics is None or not selection.topics <= indexed_topics(files):
        index_end = stretch.start
    end = min(stretch.end, index_end)
    if stretch.start < end:
        entries = positions_of(files, selection.topics, selection.queues, stretch.start, end)
        if len(entries.offsets) and int((entries.offsets + entries.sizes).max()) > index_end:
            raise IndexUnusable(
                stretch.segment.path, f"an entry leads beyond {index_end}, where another record begins"
            )
        yield from picked_batches(files, stretch.segment, entries, selection)
    if stretch.end > index_end:
        rest = replace(stretch, start=max(stretch.start, index_end))
        for chunk in chunks_of(files, rest):
            yield decode_chunk(chunk, selection, stretch.segment.path)


def picked_batches(
    files: Files, segment: Segment, entries: IndexEntries, selection: Selection
) -> Iterator[pa.RecordBatch]:
    topics = pa.array([topic for topic, _ in entries.names], pa.string())
    for records, first, last in picked(files, segment, entries):
        columns = ChunkColumns(records, selection, segment.path)
        expected = topics.take(pa.array(entries.queues[first:last]))
        if not columns.topics_of(np.arange(last - first)).equals(expected):
            raise IndexUnusable(
                segment.path, f"records behind {records.offsets[0]} are not of their entries' topics"
            )
        yield decode_chunk(records, selection, segment.path) if columns.has_batches else columns.batch()


def picked(
    files: Files, segment: Segment, entries: IndexEntries, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[PickedRecords, int, int]]:
    """Yields the records of all entries, about `chunk_bytes` at a time, each time with (first, last): they are the records of
    the entries [first, last)."""
    ends = np.cumsum(entries.sizes)
    parts: list[NDArray[np.uint8]] = []
    first = held = last = 0
    for part, last in compacted(files, segment, entries, chunk_bytes):
        parts.append(part)
        held += len(part)
        if held >= chunk_bytes or last == len(ends):
            sizes = entries.sizes[first:last]
            positions = ends[first:last] - sizes - (ends[first - 1] if first else 0)
            records = PickedRecords(np.concatenate(parts), positions, entries.offsets[first:last])
            require_identity(segment, entries, records, first, last)
            yield records, first, last
            parts, held, first = [], 0, last


def compacted(
    files: Files, segment: Segment, entries: IndexEntries, buffer_bytes: int
) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """Yields some records, concatenated, and the number of the first entry whose record is not among them yet. The buffer is
    reused for the next records."""
    offsets, sizes = entries.offsets, entries.sizes
    gaps = np.append(0, offsets[1:] - (offsets[:-1] + sizes[:-1]))
    if (gaps < 0).any():
        raise IndexUnusable(segment.path, f"entries overlap at {offsets[int(np.argmin(gaps))]}")
    apart = gaps > GAP_BYTES_MAX
    places = np.cumsum(np.where(apart, 0, gaps)) + np.append(0, np.cumsum(sizes)[:-1])  # without wide gaps
    np.empty(HEAP_HINT_BYTES, np.uint8)
    file = open_segment(files, segment)
    try:
        buffer = np.empty(0, np.uint8)
        first = 0
        while first < len(offsets):
            base = int(places[first])
            last = max(first + 1, int(np.searchsorted(places + sizes, base + buffer_bytes, "right")))
            used = int(places[last - 1] + sizes[last - 1]) - base
            if used > len(buffer):
                buffer = np.empty(used, np.uint8)
            view = buffer.data
            begins = np.append(first, first + 1 + np.flatnonzero(apart[first + 1 : last]))
            ends = np.append(begins[1:], last) - 1
            runs = (offsets[begins], places[begins] - base, places[ends] + sizes[ends] - base)
            for at, begin, end in zip(*(run.tolist() for run in runs), strict=True):
                if file.read_into(view[begin:end], at - segment.start_offset) < end - begin:
                    raise LogCorrupted(segment.path, at, "the file ends before the planned end of the read")
            yield without_gaps(buffer, places[first:last] - base, sizes[first:last]), last
            first = last
    finally:
        file.close()


def require_identity(
    segment: Segment, entries: IndexEntries, records: PickedRecords, first: int, last: int
) -> None:
    """Check that each record has its entry's topic, queue and queue offset. The physical offset is checked when the record is
    decoded."""
    everywhere = np.ndarray(
        len(records.data) - IDENTITY.itemsize + 1, f"V{IDENTITY.itemsize}", records.data, 0, (1,)
    )
    found = everywhere[records.positions].view(IDENTITY)
    queue_ids = np.array([queue_id for _, queue_id in entries.names])[entries.queues[first:last]]
    good = (found["total_size"] == entries.sizes[first:last]) & (found["queue_id"] == queue_ids)
    good &= (found["magic"] == MAGIC_V1) | (found["magic"] == MAGIC_V2)
    good &= found["queue_offset"] == entries.queue_offsets[first:last]
    if not good.all():
        place = first + int(np.argmin(good))
        topic, queue_id = entries.names[entries.queues[place]]
        raise IndexUnusable(
            segment.path,
            f"at physical offset {entries.offsets[place]} is not the record that entry {entries.queue_offsets[place]} "
            f"of queue {topic}/{queue_id} leads to",
        )
