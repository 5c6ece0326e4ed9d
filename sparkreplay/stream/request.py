"""A stream's request: its options, and the beginning of a new query in a store.

Invariant: an option that only streams have is rejected for a batch read, and vice versa."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic

from sparkreplay.errors import OptionError, SegmentGone
from sparkreplay.read.offsets import Edge
from sparkreplay.read.options import ReadOptions
from sparkreplay.read.plan import plan, require_boundary
from sparkreplay.read.reader import physical_range
from sparkreplay.read.request import conditions, deleted, lose, of_broker, require_brokers
from sparkreplay.read.times import segments_within, window_of
from sparkreplay.read.topics import require_topics
from sparkreplay.store.replicas import choose_replicas
from sparkreplay.store.snapshot import StoreSnapshot, open_store, up_to_latest
from sparkreplay.stream.admission import Admission, cut, read_admission
from sparkreplay.stream.logstream import LOOKS_MAX, LogStream, Replicas

STREAM_ONLY = ("maxBytesPerTrigger", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")


def admission_of(options: ReadOptions, given: Mapping[str, str]) -> Admission:
    """The limits of batches. Raises OptionError for an end, which a stream does not have, and for contradictory limits."""
    if options.ending != Edge():  # `latest` is no edge, because it moves the bound
        raise OptionError("endingOffsets", "a stream has no end; read a part of the log with spark.read")
    return read_admission({name.lower(): value for name, value in given.items()})


def refuse_for_batch(given: Mapping[str, str]) -> None:
    names = {name.lower() for name in given}
    for name in STREAM_ONLY:
        if name.lower() in names:
            raise OptionError(name, "is for streams (spark.readStream); leave it out")


def open_stream(options: ReadOptions, clock_s: Callable[[], float] = monotonic) -> LogStream:
    """A stream over the stores of `options`. No store is opened yet."""
    return LogStream(
        options, lambda: replicas_of(options), lambda stores: beginnings(options, stores), clock_s
    )


def replicas_of(options: ReadOptions) -> Replicas:
    """The stores of each broker set, as they are now. Raises the errors of open_store, choose_replicas and up_to_latest."""
    for looks in range(1, LOOKS_MAX + 1):
        stores = [
            open_store(path, address=options.address, allow_uncommitted=options.allow_uncommitted)
            for path in options.paths
        ]
        try:
            choose_replicas(stores)  # raises if stores of one name are not replicas of one set
            break
        except SegmentGone:
            if looks == LOOKS_MAX:
                raise
    if options.to_latest:
        stores = [up_to_latest(store, allow_uncommitted=options.allow_uncommitted) for store in stores]
    sets: dict[str, list[StoreSnapshot]] = {}
    for store in stores:
        sets.setdefault(store.broker_name, []).append(store)
    return sets


def beginnings(options: ReadOptions, stores: Mapping[str, StoreSnapshot]) -> dict[str, int]:
    """The beginning of a new query in each set. Raises OptionError for an impossible beginning, MessagesGone for deleted
    messages, and TopicMissing."""
    require_brokers(options, list(stores))
    require_topics(options, stores.values())
    return {name: beginning(options, store) for name, store in stores.items()}


def beginning_in_time(options: ReadOptions, store: StoreSnapshot, start: int, end: int) -> int:
    """The beginning of the first segment that may hold rows of the starting time."""
    segments = [
        segment for segment in store.segments if start < segment.end_offset and segment.start_offset < end
    ]
    window = window_of(conditions(options, store.broker_name))
    within = segments_within(store.files, segments, end, window)
    return within[0].start_offset if within else start


def beginning(options: ReadOptions, store: StoreSnapshot) -> int:
    """The beginning in one store. If times or offsets of queues are requested, it is the log's beginning, because these are
    applied as conditions on rows."""
    start, end = physical_range(options, store)
    if options.starting.at_bound or start == end:  # the bound may lie inside a record
        return cut(store, store.min_offset, end, max_bytes=None, max_messages=None).offset
    require_boundary(store, start)
    if options.store_times_ordered:
        start = max(start, beginning_in_time(options, store, start, end))
    named = of_broker(options.starting.queue_offsets, store.broker_name)
    for why in deleted(store, plan(store, start, end, options.split_bytes), named):
        lose(options, store.root, why)
    return start
