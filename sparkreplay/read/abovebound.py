"""Records above the committed bound. They explain why a read has fewer rows than the log has messages.

Invariant: no record above the bound becomes a row. Bytes that a truncation left above the bound look like such records. At
most 64 MiB above the bound are read, and the first record of each later segment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from sparkreplay.errors import LogCorrupted, SegmentGone
from sparkreplay.read.plan import WINDOW_BYTES, record_at_or_after
from sparkreplay.records.decode import ChunkColumns, Selection
from sparkreplay.records.walk import Stretch, chunks_of
from sparkreplay.store.framing import RecordChunk
from sparkreplay.store.segments import open_segment
from sparkreplay.store.snapshot import Segment, StoreSnapshot

WALKED_BYTES_MAX = 64 << 20
STALE_MS = 10_000
"""A working broker's bound follows its log within some seconds."""
EVERYTHING = Selection(columns=(), committed_only=False, system_topics=True)


@dataclass(frozen=True)
class AboveBound:
    """The records above a bound: from physical offset `start` up to at least `end`, stored within `span_ms`."""

    path: str
    bound: int
    bound_source: str
    start: int
    end: int
    span_ms: int
    nothing_committed: bool

    @property
    def is_stale(self) -> bool:
        """Whether there is more above the bound than a working broker's lag explains."""
        return self.nothing_committed or self.span_ms >= STALE_MS

    @property
    def why(self) -> str:
        return (
            f"records of at least {self.end - self.start} bytes, [{self.start}, {self.end}), lie above the committed bound "
            f"{self.bound} ({self.bound_source}) and are not read: a Java master that is alone in its set does not write the "
            "bound, and with too few replicas nothing is committed. Give address of the running broker, or read another "
            "replica, or what a failover may take back with allowUncommitted=true and endingOffsets=latest"
        )

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def records_above(store: StoreSnapshot) -> AboveBound | None:
    """The records above the bound. None if no record begins there, or if another bound than the committed bound was given."""
    if store.committed is not None:
        return None
    times: list[int] = []
    start = end = None
    for segment in store.segments:
        with suppress(SegmentGone):
            if segment.end_offset > store.bound:
                stretch = records_from(store, segment, walked=0 if start is None else WALKED_BYTES_MAX)
                for first, last, stored_ms in stretch:
                    start = first if start is None else start
                    end = last
                    times += stored_ms
    if start is None or end is None:
        return None
    span_ms = max(times) - min(times) if times else 0
    nothing = store.bound <= store.min_offset
    return AboveBound(store.root, store.bound, store.bound_source, start, end, span_ms, nothing)


def records_from(store: StoreSnapshot, segment: Segment, walked: int) -> Iterator[tuple[int, int, list[int]]]:
    """Yields, for each chunk of a segment's records that begin above the bound, (start, end, [first and last store time]).
    `walked` is how many bytes of other segments count as read. If these reach the limit, only the segment's first chunk is
    read. Raises SegmentGone."""
    low = max(store.bound, segment.start_offset)
    searched = low + WINDOW_BYTES if low == store.bound else low + 1
    with closing(open_segment(store.files, segment)) as file:
        start = record_at_or_after(file, segment, low, segment.end_offset, upto=searched)
    if start is None:
        return
    end = min(segment.end_offset, start + (WINDOW_BYTES if walked else WALKED_BYTES_MAX))
    stretch = Stretch(segment, start, end, at_bound=True)
    try:
        for chunk in chunks_of(store.files, stretch):
            yield start, chunk.end_offset, stored_within(chunk, segment)
            stretch = replace(stretch, start=chunk.end_offset)
    except LogCorrupted as error:  # here the records end
        if error.offset > stretch.start:
            for chunk in chunks_of(store.files, replace(stretch, end=error.offset, at_bound=False)):
                yield start, chunk.end_offset, stored_within(chunk, segment)


def stored_within(chunk: RecordChunk, segment: Segment) -> list[int]:
    stored = ChunkColumns(chunk, EVERYTHING, segment.path).native("store_timestamp")
    return [int(stored.min()), int(stored.max())]
