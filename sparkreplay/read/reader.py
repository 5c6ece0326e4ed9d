"""One read of one or more stores, with or without Spark. It is planned once on the driver, and any worker can read its
stretches.

Invariant: no row ends above the bound that the plan froze, and a stretch whose log was truncated meanwhile fails. Rows of a
stretch are in log order. `read_all` returns the rows of each queue in log order. To get the same order from any engine, sort
the rows of a topic by broker_name, queue_id and queue_offset."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from messagestore.systemtopics import is_system_topic
from sparkreplay.errors import OptionError, SegmentGone
from sparkreplay.read.abovebound import records_above
from sparkreplay.read.index import indexed_end, read_indexed
from sparkreplay.read.options import SPLIT_BYTES_MIN, ReadOptions
from sparkreplay.read.plan import as_far_as_wanted, boundary_of, plan, require_boundary
from sparkreplay.read.pushed import Comparison, may_hold, names_allowed, row_conditions
from sparkreplay.read.request import conditions, lose, require_brokers, require_present
from sparkreplay.read.times import segments_within, window_of
from sparkreplay.read.topics import require_topics
from sparkreplay.records.decode import Selection, decode_chunk
from sparkreplay.records.rowfilter import Condition, RowFilter, TopicOneOf
from sparkreplay.records.walk import Stretch, chunks_of
from sparkreplay.store.hold import LogHold, hold_on, new_holder
from sparkreplay.store.replicas import choose_replicas
from sparkreplay.store.snapshot import StoreSnapshot, check_epochs, open_store, up_to, up_to_latest

logger = logging.getLogger("sparkreplay")

PARTITIONS_HINTED_MAX = 10_000
"""Limit of minPartitions, because each partition costs a search for a split point and a task."""


@dataclass(frozen=True)
class SourcePlan:
    """The part of one store to read: physical offsets [start, end), and the records that become rows."""

    store: StoreSnapshot
    selection: Selection
    start: int
    end: int
    index_end: int | None = None
    """Below this offset records are found through the consume queues. None means that the log is walked."""


@dataclass(frozen=True)
class ReadPlan:
    """The plan for every worker: the frozen view of each store, and the stretches."""

    columns: tuple[str, ...]
    sources: tuple[SourcePlan, ...]
    stretches: tuple[Stretch, ...]
    fail_on_data_loss: bool = True
    """If False, a stretch is left out and logged if retention deleted its segment."""
    store_times_ordered: bool = False
    holds: tuple[LogHold, ...] = ()
    """The leases taken from the brokers for this read."""


def plan_read(options: ReadOptions) -> ReadPlan:
    """Plan the read. Raises OptionError for a request that these stores cannot serve, MessagesGone for deleted messages,
    TopicMissing, and the errors of opening."""
    if options.starting.at_bound:
        raise OptionError("startingOffsets", "latest is where a stream may begin; a batch would have no rows")
    stores = open_stores(options)
    require_brokers(options, [store.broker_name for store in stores])
    require_topics(options, stores)
    for above in filter(None, map(records_above, stores)):
        if above.is_stale:
            logger.warning("%s", above)
    ranges = [physical_range(options, store) for store in stores]
    split_bytes = split_bytes_of(options, sum(end - start for start, end in ranges))
    sources = []
    stretches: list[Stretch] = []
    for number, (store, (start, end)) in enumerate(zip(stores, ranges, strict=True)):
        source, planned = plan_range(store, selection_of(options, store), start, end, split_bytes, number)
        require_present(options, store, planned, start)
        use_index = options.use_index and bool(planned)
        sources.append(replace(source, index_end=indexed_end(store, end)) if use_index else source)
        stretches += planned
    holder = new_holder()
    held = zip(stores, ranges, strict=True) if options.hold_log else ()
    read = ReadPlan(
        options.columns,
        tuple(sources),
        tuple(stretches),
        options.fail_on_data_loss,
        options.store_times_ordered,
        tuple(hold_on(store, holder, start) for store, (start, _) in held),
    )
    return within_times(read) if options.store_times_ordered else read


def open_stores(options: ReadOptions) -> list[StoreSnapshot]:
    """One snapshot per broker set, with the requested bound. Raises the errors of open_store, choose_replicas, up_to and
    up_to_latest."""
    opened = [
        open_store(path, address=options.address, allow_uncommitted=options.allow_uncommitted)
        for path in options.paths
    ]
    stores = choose_replicas(opened)
    if options.ending.physical_offset is not None:
        stores = [up_to(store, options.ending.physical_offset) for store in stores]
    if options.to_latest:
        stores = [up_to_latest(store, allow_uncommitted=options.allow_uncommitted) for store in stores]
    return stores


def plan_range(
    store: StoreSnapshot, selection: Selection, start: int, end: int, split_bytes: int, source: int
) -> tuple[SourcePlan, list[Stretch]]:
    """The part [start, end) of one store, as source number `source` of a read. Unless the part is empty, `start` must be a
    record boundary."""
    if start < end:
        require_boundary(store, start)
    return SourcePlan(store, selection, start, end), plan(store, start, end, split_bytes, source)


def selection_of(options: ReadOptions, store: StoreSnapshot) -> Selection:
    """The records of `store` that become rows."""
    found = conditions(options, store.broker_name)
    return Selection(
        columns=options.columns,
        topics=options.topics,
        queues=options.queues,
        committed_only=options.committed_only,
        system_topics=options.system_topics,
        check_crc=options.check_crc,
        check_record_crc=options.check_record_crc,
        decompress=options.decompress,
        broker_name=store.broker_name,
        epochs=store.epochs,
        row_filter=RowFilter(found) if found else None,
    )


def physical_range(options: ReadOptions, store: StoreSnapshot) -> tuple[int, int]:
    """The range [start, end) of the log, within the log and below its bound."""
    log_min = store.min_offset
    start, end = options.starting.physical_offset, max(store.bound, log_min)
    if start is not None and start > end:
        raise OptionError("startingOffsets", f"{start} lies above the end of the read, {end}")
    if start is not None and start < log_min:
        lose(options, store.root, f"offset {start} was deleted, the log begins at {log_min}")
    elif store.bound < log_min and options.ending.physical_offset is not None:
        lose(options, store.root, f"all below {store.bound} was deleted, the log begins at {log_min}")
    return boundary_of(store, max(start or 0, log_min)), end


def split_bytes_of(options: ReadOptions, total_bytes: int) -> int:
    even = -(-total_bytes // min(options.min_partitions, PARTITIONS_HINTED_MAX))
    return max(SPLIT_BYTES_MIN, min(options.split_bytes, even)) if even else options.split_bytes


def pruned(read: ReadPlan, pushed: Sequence[Comparison]) -> ReadPlan:
    """The same read without the work that filters exclude. Whole stretches are dropped by broker_name, physical_offset and
    epoch. Other rows are dropped before their bodies are copied. The caller must evaluate the filters again on the remaining
    rows."""
    named = names_allowed(pushed, "broker_name")

    def wanted(stretch: Stretch) -> bool:
        store = read.sources[stretch.source].store
        return (
            named(store.broker_name)
            and may_hold(pushed, "physical_offset", stretch.start, stretch.end - 1)
            and may_hold(pushed, "epoch", *epochs_within(store, stretch))
        )

    sources = tuple(
        replace(source, selection=narrowed(source.selection, row_conditions(pushed)))
        for source in read.sources
    )
    left = replace(read, sources=sources, stretches=tuple(as_far_as_wanted(read.stretches, wanted)))
    return within_times(left) if read.store_times_ordered else left


def within_times(read: ReadPlan) -> ReadPlan:
    """The same read without the segments that its time limits exclude. Raises OptionError if store times do not grow along the
    log."""
    kept = {
        (number, segment.name)
        for number, source in enumerate(read.sources)
        for segment in segments_within(
            source.store.files,
            list(dict.fromkeys(stretch.segment for stretch in read.stretches if stretch.source == number)),
            source.end,
            window_of(conditions_of(source.selection)),
        )
    }
    stretches = tuple(stretch for stretch in read.stretches if (stretch.source, stretch.segment.name) in kept)
    return replace(read, stretches=stretches)


def conditions_of(selection: Selection) -> tuple[Condition, ...]:
    return () if selection.row_filter is None else selection.row_filter.conditions


def narrowed(selection: Selection, more: tuple[Condition, ...]) -> Selection:
    """The selection with more conditions. A condition that names topics is merged into the selection's own `topics`, because
    these are compared fastest."""
    topics = selection.topics
    conditions = []
    for condition in more:
        if not isinstance(condition, TopicOneOf):
            conditions.append(condition)
        elif topics is None and not selection.system_topics:
            topics = frozenset(name for name in condition.topics if not is_system_topic(name))
        else:
            topics = frozenset(condition.topics) & (frozenset(condition.topics) if topics is None else topics)
    every = (*conditions, *conditions_of(selection))
    return replace(selection, topics=topics, row_filter=RowFilter(every) if every else None)


def epochs_within(store: StoreSnapshot, stretch: Stretch) -> tuple[int, int]:
    """The first and last epoch of a stretch's rows; -1 for rows before the epoch file's first epoch."""
    at_start = [epoch for epoch, start in store.epochs if start <= stretch.start]
    at_end = [epoch for epoch, start in store.epochs if start < stretch.end]
    return (at_start or [-1])[-1], (at_end or [-1])[-1]


def read_stretch(read: ReadPlan, stretch: Stretch) -> Iterator[pa.RecordBatch]:
    """The rows of a stretch in batches of a few MiB. Raises LogCorrupted or SegmentGone, or EpochChanged at the end."""
    source = read.sources[stretch.source]
    begun = False
    try:
        for batch in batches_of(source, stretch):
            for hold in read.holds:
                hold.renew()
            if batch.num_rows:
                begun = True
                yield batch
    except SegmentGone:
        if read.fail_on_data_loss or begun:
            raise
        logger.warning(
            "%s: was deleted after the read was planned; its part [%d, %d) is left out (failOnDataLoss=false)",
            stretch.segment.path,
            stretch.start,
            stretch.end,
        )
    check_epochs(source.store)


def batches_of(source: SourcePlan, stretch: Stretch) -> Iterator[pa.RecordBatch]:
    files, selection = source.store.files, source.selection
    if source.index_end is not None:
        yield from read_indexed(files, stretch, selection, source.index_end)
        return
    for chunk in chunks_of(files, stretch):
        yield decode_chunk(chunk, selection, stretch.segment.path)


def read_all(read: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Read every stretch in this process, in the order of each log."""
    try:
        for stretch in read.stretches:
            yield from read_stretch(read, stretch)
    finally:
        for hold in read.holds:
            hold.release()
