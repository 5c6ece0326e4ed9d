"""The range of an export: the range of a new plan, the range of the frozen plan of an unfinished export, or the records
committed since the last export.

Invariant: a frozen plan is never computed again, so a later run finishes it with the same parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparkreplay.errors import EpochChanged, ExportRefused
from sparkreplay.export.manifest import Manifest, StartedPlan, StoreRange
from sparkreplay.export.partitions import OrderedByPartition
from sparkreplay.read.plan import plan
from sparkreplay.read.reader import ReadPlan, SourcePlan
from sparkreplay.records.walk import Stretch, chunks_of
from sparkreplay.store.epochs import common_part
from sparkreplay.store.samelog import first_apart, marks_of
from sparkreplay.store.segments import Segment
from sparkreplay.store.snapshot import StoreSnapshot


def by_partition(read: ReadPlan) -> ReadPlan:
    """The same read with the rows of each chunk ordered by partition."""

    def ordered(source: SourcePlan) -> SourcePlan:
        chosen = source.selection
        conditions = chosen.row_filter.conditions if chosen.row_filter else ()
        return replace(source, selection=replace(chosen, row_filter=OrderedByPartition(conditions)))

    return replace(read, sources=tuple(ordered(source) for source in read.sources))


def frozen(request: dict[str, Any], read: ReadPlan) -> StartedPlan:
    """The plan in its stored form."""
    stretches = [
        [stretch.source, stretch.segment.name, stretch.start, stretch.end, stretch.at_bound]
        for stretch in read.stretches
    ]
    ranges = [range_of(source.store, source.start, source.end) for source in read.sources]
    return StartedPlan(request, ranges, stretches)


def range_of(store: StoreSnapshot, start: int, end: int) -> StoreRange:
    epochs = [list(entry) for entry in store.epochs_below(end)]
    committed = store.bound if store.committed is None else store.committed
    return StoreRange(
        store.root,
        store.broker_name,
        start,
        end,
        store.bound,
        committed,
        store.bound_source,
        epochs,
        marks_of(store),
    )


def resumed(folder: str, plan: StartedPlan, fresh: ReadPlan) -> ReadPlan:
    """The frozen plan, applied to the stores of the new plan `fresh`. Raises EpochChanged if a log was truncated below its
    end."""
    sources = []
    for was, source in zip(plan.stores, fresh.sources, strict=True):
        require_same_log(folder, was, source.store)
        store = replace(source.store, bound=was.bound, bound_source=was.bound_source)
        sources.append(replace(source, store=store, start=was.start_offset, end=was.end_offset))
    segments = [{segment.name: segment for segment in source.store.segments} for source in sources]
    stretches = tuple(
        Stretch(segments[source].get(name) or gone(sources[source].store, name), start, end, at_bound, source)
        for source, name, start, end, at_bound in plan.stretches
    )
    return replace(fresh, sources=tuple(sources), stretches=stretches)


def gone(store: StoreSnapshot, name: str) -> Segment:
    """A placeholder for a deleted segment: reading it raises an error. It is not read if its stretches were exported before."""
    return Segment(name, store.files.shown(name), int(name.rpartition("/")[2]), 0)


def require_same_log(folder: str, was: StoreRange, store: StoreSnapshot) -> None:
    """Check that the planned or exported range of a log is still the same. Raises ExportRefused or EpochChanged."""
    if was.broker_name != store.broker_name:
        raise ExportRefused(
            folder,
            f"holds rows of broker set {was.broker_name}; {store.root} is of {store.broker_name}; name a new folder",
        )
    apart = first_apart(store, was.log_marks)
    if apart is not None:
        raise ExportRefused(
            folder,
            f"holds rows of another log of broker set {was.broker_name}: at {apart} that of {store.root} has another record; "
            "the store was created again, or is another cluster's; name a new folder",
        )
    before = tuple((epoch, start) for epoch, start in was.epochs)
    if before:
        then, now = common_part(before, store.epochs, was.end_offset)
        if then != now:
            raise EpochChanged(store.root, was.end_offset, then, now)


def appended(folder: str, manifest: Manifest, fresh: ReadPlan, split_bytes: int) -> ReadPlan:
    """The range of each store after its last exported range. Raises ExportRefused if a part of the range was deleted."""
    ends = manifest.ends()
    sources = []
    stretches: list[Stretch] = []
    for number, source in enumerate(fresh.sources):
        store, was = source.store, ends.get(source.store.broker_name)
        if was is not None:
            require_same_log(folder, was, store)
            if store.min_offset > was.end_offset:
                raise ExportRefused(
                    folder,
                    f"holds {was.broker_name} up to {was.end_offset}, but {store.root} begins at {store.min_offset}: "
                    "rows between them were deleted; export what is left to a new folder",
                )
            start = min(next_record(store, was.end_offset), source.end)
            source = replace(source, start=start)
        sources.append(source)
        stretches += plan(store, source.start, source.end, split_bytes, number)
    return replace(fresh, sources=tuple(sources), stretches=tuple(stretches))


def next_record(store: StoreSnapshot, end: int) -> int:
    """Where the first record begins that a read up to `end` left out: below `end` if `end` lies inside that record."""
    at = max(store.min_offset, min(end, store.bound))
    for segment in store.segments:
        if segment.start_offset < at < segment.end_offset:
            last = segment.start_offset
            for chunk in chunks_of(store.files, Stretch(segment, segment.start_offset, at, at_bound=True)):
                last = chunk.end_offset
            return last
    return at
