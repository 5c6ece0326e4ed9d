"""Replicas of one broker set, compared byte for byte.

Invariant: only bytes that both replicas have committed are compared: from the higher of their logs' beginnings to the lower of
their committed bounds. Bytes after the BLANK record that ends a segment belong to no record, and are not compared."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from messagestore.record import PREFIX, queue_facts
from sparkreplay.check.findings import Findings
from sparkreplay.errors import LogCorrupted, SegmentGone
from sparkreplay.records.walk import Stretch, chunks_of
from sparkreplay.store.epochs import Epochs, common_part
from sparkreplay.store.segments import Segment, open_segment
from sparkreplay.store.snapshot import StoreSnapshot

COMPARED_BYTES = 4 << 20
DIFFERENCES_MAX = 10
"""Limit for each stretch of one replica. After that many differences the search ends."""


@dataclass(frozen=True)
class CompareJob:
    """Two replicas to compare, and the stretches (parts of the first replica's segments) in which to compare them."""

    one: StoreSnapshot
    other: StoreSnapshot
    stretches: tuple[Stretch, ...]


@dataclass
class CompareReport:
    """A worker's findings in one stretch. If a replica deleted the stretch meanwhile, `gone` is true and there are no
    findings."""

    bytes: int = 0
    gone: bool = False
    findings: Findings = field(default_factory=Findings)


def comparison(one: StoreSnapshot, other: StoreSnapshot, findings: Findings) -> CompareJob:
    """The comparison of the range that both replicas hold and have committed. If their epochs differ there, that is the first
    finding."""
    start, end = max(one.min_offset, other.min_offset), min(one.bound, other.bound)
    epochs, others = common_part(one.epochs, other.epochs, end)
    if epochs != others:
        findings.add("epochs", f"{one.root} and {other.root}", *first_epoch_apart(epochs, others))
    stretches = tuple(
        Stretch(segment, max(start, segment.start_offset), min(end, segment.end_offset), at_bound=True)
        for segment in one.segments
        if max(start, segment.start_offset) < min(end, segment.end_offset)
    )
    return CompareJob(one, other, stretches)


def first_epoch_apart(epochs: Epochs, others: Epochs) -> tuple[int | None, str]:
    for mine, theirs in zip(epochs, others, strict=False):
        if mine != theirs:
            return min(
                mine[1], theirs[1]
            ), f"one has epoch {mine[0]} from {mine[1]}, the other {theirs[0]} from {theirs[1]}"
    longer = epochs if len(epochs) > len(others) else others
    epoch, start = longer[min(len(epochs), len(others))]
    return start, f"only one of them has epoch {epoch}"


def compare_stretch(job: CompareJob, number: int) -> CompareReport:
    """Compare one stretch. The comparison continues after a record that differs, up to DIFFERENCES_MAX of them."""
    try:
        return compared(job, number)
    except SegmentGone:
        return CompareReport(gone=True)


def compared(job: CompareJob, number: int) -> CompareReport:
    stretch = job.stretches[number]
    report = CompareReport()
    mine, theirs = np.empty(COMPARED_BYTES, np.uint8), np.empty(COMPARED_BYTES, np.uint8)
    at = stretch.start
    while at < stretch.end:
        size = min(COMPARED_BYTES, stretch.end - at)
        held = read_log(job.one, at, mine[:size])
        others_held = read_log(job.other, at, theirs[:size])
        if min(held, others_held) < size:
            path = job.one.root if held < size else job.other.root
            report.findings.add(
                "bytes", path, at + min(held, others_held), "the log ends here, before the common bound"
            )
            return report
        ends = [stretch.segment.framing.normalised(buffer[:size], at) for buffer in (mine, theirs)]
        size = min(ends) or size
        if np.array_equal(mine[:size], theirs[:size]):
            at += size
            report.bytes += size
            continue
        apart = at + int(np.argmax(mine[:size] != theirs[:size]))
        start, end, description = record_around(job, stretch, apart)
        if description is None:  # bytes after a BLANK
            report.bytes += stretch.end - at
            return report
        if report.findings.count == DIFFERENCES_MAX:
            return report
        report.findings.add("bytes", f"{job.one.root} and {job.other.root}", apart, description)
        report.bytes += end - at
        at = end
    return report


def read_log(store: StoreSnapshot, at: int, into: NDArray[np.uint8]) -> int:
    """Fill `into` with the log from physical offset `at` on. Replicas may have different segment sizes."""
    held = 0
    for segment in store.segments:
        if held == len(into) or not segment.start_offset <= at + held < segment.end_offset:
            continue
        size = min(len(into) - held, segment.end_offset - at - held)
        with closing(open_segment(store.files, segment)) as file:
            held += file.read_into(into[held : held + size].data, at + held - segment.start_offset)
    return held


def record_around(job: CompareJob, stretch: Stretch, offset: int) -> tuple[int, int, str | None]:
    """Start, end and description of the record that holds `offset`. The description is None after the last record of a
    segment."""
    at, epoch = stretch.segment.start_offset, epoch_of(job.one.epochs, offset)
    for store, segment in ((job.one, stretch.segment), *others_segment(job, stretch)):
        end = max(at, min(segment.end_offset, store.bound))
        try:
            for chunk in chunks_of(store.files, Stretch(segment, segment.start_offset, end, at_bound=True)):
                at = chunk.end_offset
                if offset >= at:
                    continue
                starts = chunk.offsets - segment.framing.lead_bytes
                place = max(0, int(np.searchsorted(starts, offset, "right")) - 1)
                position, record_at = int(chunk.positions[place]), int(chunk.offsets[place])
                ends = [*starts[1:].tolist(), at]
                return (
                    record_at,
                    ends[place],
                    f"differ in the record at {record_at}"
                    f"{named(chunk.data.data, position, record_at, segment.end_offset)}, epoch {epoch}",
                )
            if offset >= at + PREFIX.size and ends_records(store, segment, at):
                return at, stretch.end, None
        except LogCorrupted:
            continue  # the other replica may be intact here
    return (
        offset,
        min(offset + COMPARED_BYTES, stretch.end),
        f"differ in epoch {epoch}, in no identifiable record",
    )


def ends_records(store: StoreSnapshot, segment: Segment, at: int) -> bool:
    head = np.zeros(PREFIX.size, np.uint8)
    return read_log(store, at, head) == PREFIX.size and segment.framing.ends_file(head.tobytes())


def others_segment(job: CompareJob, stretch: Stretch) -> list[tuple[StoreSnapshot, Segment]]:
    return [
        (job.other, segment)
        for segment in job.other.segments
        if segment.start_offset == stretch.segment.start_offset
    ]


def named(view: memoryview, position: int, offset: int, segment_end: int) -> str:
    facts = queue_facts(view, position, segment_end - offset, offset)
    if isinstance(facts, int):
        return ""
    return f" ({facts.topic.decode('utf-8', 'replace')}/{facts.queue_id}, queue offset {facts.queue_offset})"


def epoch_of(epochs: Epochs, offset: int) -> int:
    return max((epoch for epoch, start in epochs if start <= offset), default=-1)
