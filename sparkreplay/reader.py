"""One read of one or more stores, with or without Spark: planned once on the driver, stretches read wherever workers are.

Invariant: no row ends above the bound that the plan froze, and a stretch whose log was truncated meanwhile fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sparkreplay.decode import Selection, decode_chunk
from sparkreplay.errors import OptionError
from sparkreplay.options import ReadOptions
from sparkreplay.plan import plan, require_boundary
from sparkreplay.store import StoreSnapshot, check_epochs, open_store
from sparkreplay.walk import Stretch, chunks_of


@dataclass(frozen=True)
class SourcePlan:
    """What is read of one store: physical offsets [start, end), and which of its records become rows."""

    store: StoreSnapshot
    selection: Selection
    start: int
    end: int


@dataclass(frozen=True)
class ReadPlan:
    """What every worker gets: the frozen view of each store, and the stretches."""

    columns: tuple[str, ...]
    sources: tuple[SourcePlan, ...]
    stretches: tuple[Stretch, ...]


def plan_read(options: ReadOptions) -> ReadPlan:
    """Raises OptionError for a range outside a log, and what opening a store raises."""
    sources = tuple(plan_source(path, options) for path in options.paths)
    stretches = tuple(
        stretch
        for number, source in enumerate(sources)
        for stretch in plan(source.store, source.start, source.end, options.split_bytes, number)
    )
    return ReadPlan(options.columns, sources, stretches)


def plan_source(path: str, options: ReadOptions) -> SourcePlan:
    store = open_store(path)
    start = store.min_offset if options.start is None else options.start
    end = max(store.bound, store.min_offset) if options.end is None else options.end
    if end > store.bound and options.end is not None:
        raise OptionError("endingOffsets", f"{end} lies above the committed bound {store.bound}")
    if start < store.min_offset:
        raise OptionError("startingOffsets", f"{start} was deleted; the log begins at {store.min_offset}")
    if start > end:
        raise OptionError("startingOffsets", f"{start} lies above the end of the read, {end}")
    require_boundary(store, start)
    selection = Selection(
        columns=options.columns,
        topics=options.topics,
        queues=options.queues,
        committed_only=options.committed_only,
        system_topics=options.system_topics,
        check_crc=options.check_crc,
        broker_name=store.broker_name,
        epochs=store.epochs,
    )
    return SourcePlan(store, selection, start, end)


def read_stretch(read: ReadPlan, stretch: Stretch) -> Iterator[pa.RecordBatch]:
    """Batches of a few MiB; raises LogCorrupted, or EpochChanged at its end."""
    source = read.sources[stretch.source]
    for chunk in chunks_of(source.store.files, stretch):
        batch = decode_chunk(chunk, source.selection, stretch.segment.path)
        if batch.num_rows:
            yield batch
    check_epochs(source.store)


def read_all(read: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Every stretch, in each log's order, in this process."""
    for stretch in read.stretches:
        yield from read_stretch(read, stretch)
