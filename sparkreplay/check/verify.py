"""Checks one replica by itself: every byte of its log up to the bound, and the files that describe the log.

Invariant: a finding does not end the check: the walk over the log continues with the next bytes that can be recognised as a
record. Each record and its CRC are checked by the rules of messagestore.record."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from messagestore.record import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    check,
    queue_facts,
)
from sparkreplay.check.findings import Findings
from sparkreplay.check.queuecheck import Queue, QueueEntriesCheck, QueueRecords, QueueRun
from sparkreplay.errors import LogCorrupted, NotText, SegmentGone, StoreUnreadable
from sparkreplay.read.plan import SEARCH_BYTES_MAX, begins_at, boundary_of, record_at_or_after
from sparkreplay.records.decode import Selection, messages_of
from sparkreplay.records.innerbatch import BATCH_FLAGS
from sparkreplay.records.walk import Stretch, chunks_of
from sparkreplay.store.framing import RecordChunk
from sparkreplay.store.queueentries import FOLDER as QUEUE_FOLDER
from sparkreplay.store.segments import Segment, open_segment
from sparkreplay.store.snapshot import StoreSnapshot
from sparkreplay.summary.scan import INNER_BATCH

COLUMNS = ("topic", "queue_id", "queue_offset", "physical_offset", "store_size", "sys_flag")
EVERYTHING = Selection(columns=COLUMNS, committed_only=False, system_topics=True, check_crc=True)
INNER_NUM = re.compile(rb"(?:^|\x02)INNER_NUM\x01(\d{1,6})(?:\x02|$)")
INDEX_HEADER = struct.Struct(">qqqqii")
"""begin and end timestamp, begin and end physical offset, used slots, number of the next entry (upstream: IndexHeader)."""
CHECKPOINT = struct.Struct(">qqqqq")


@dataclass
class StretchReport:
    """A worker's findings in one stretch."""

    records: int = 0
    bytes: int = 0
    findings: Findings = field(default_factory=Findings)
    gone: bool = False
    """The stretch's segment was deleted before it was read to its end. The rest of the report is then void."""
    queues: dict[Queue, QueueRun] = field(default_factory=dict)


@dataclass(frozen=True)
class VerifyJob:
    """The stores, and the stretches of all stores. A stretch is a whole segment here, because a segment begins with a
    record."""

    stores: tuple[StoreSnapshot, ...]
    stretches: tuple[Stretch, ...]
    record_crcs: bool = False


def has_queues(store: StoreSnapshot) -> bool:
    """False for a copy of the segments alone, which has no consume queues."""
    try:
        store.files.entries(QUEUE_FOLDER)
    except FileNotFoundError:
        return False
    return True


def whole_segments(store: StoreSnapshot, number: int) -> Iterator[Stretch]:
    """The log up to the bound, with one stretch for each segment."""
    for segment in store.segments:
        if segment.start_offset < store.bound:
            end = min(segment.end_offset, store.bound)
            yield Stretch(segment, segment.start_offset, end, at_bound=end == store.bound, source=number)


def verify_stretch(job: VerifyJob, number: int) -> StretchReport:
    """Walk one stretch. The walk continues after anything wrong in it."""
    try:
        return checked(job, number)
    except SegmentGone:
        return StretchReport(gone=True)


def checked(job: VerifyJob, number: int) -> StretchReport:
    stretch = job.stretches[number]
    store = job.stores[stretch.source]
    report = StretchReport()
    queues = QueueEntriesCheck(store.files, report.findings, has_queues(store))
    at: int | None = stretch.start
    while at is not None and at < stretch.end:
        at = walk_on(store, replace(stretch, start=at), report, queues, job.record_crcs)
    queues.flush()
    report.queues = queues.runs
    disagreement = store.log.index_disagrees(store.files, stretch.segment, stretch.end)
    if disagreement is not None:
        report.findings.add("ledger index", store.files.shown(store.log.epochs_name), *disagreement)
    for broken in store.log.broken(store.files, stretch.segment, stretch.end):
        report.findings.add("ledger check", stretch.segment.path, *broken)
    return report


def walk_on(
    store: StoreSnapshot,
    stretch: Stretch,
    report: StretchReport,
    queues: QueueEntriesCheck,
    record_crcs: bool,
) -> int | None:
    """Check records up to the first bytes that are no record. Returns the offset of the next record that can be recognised, or
    None at the end of the stretch."""
    path = stretch.segment.path
    try:
        for chunk in chunks_of(store.files, stretch):
            check_chunk(chunk, path, stretch, report, queues, record_crcs)
            stretch = replace(stretch, start=min(chunk.end_offset, stretch.end))
        return None
    except LogCorrupted as error:
        broken = error
    if broken.offset > stretch.start:  # the records before the damage
        for chunk in chunks_of(store.files, replace(stretch, end=broken.offset, at_bound=False)):
            check_chunk(chunk, path, stretch, report, queues, record_crcs)
    report.findings.add("log", path, broken.offset, broken.why)
    return next_record(store, stretch.segment, broken.offset + 1, stretch.end)


def next_record(store: StoreSnapshot, segment: Segment, offset: int, end: int) -> int | None:
    """Where the next identifiable record begins, however much before it is damaged."""
    with closing(open_segment(store.files, segment)) as file:
        for at in range(offset, end, SEARCH_BYTES_MAX):
            found = record_at_or_after(file, segment, at, end)
            if found is not None:
                return found
    return None


def check_chunk(
    chunk: RecordChunk,
    path: str,
    stretch: Stretch,
    report: StretchReport,
    queues: QueueEntriesCheck,
    record_crcs: bool,
) -> None:
    report.records += len(chunk.positions)
    report.bytes += len(chunk.data)
    try:
        columns = messages_of(chunk, replace(EVERYTHING, check_record_crc=record_crcs), path)
        batch, batched = columns.batch(), columns.in_batches()
    except (LogCorrupted, NotText):
        found = list(verified_records(chunk, path, stretch, report.findings, record_crcs))
        batch = pa.RecordBatch.from_pylist([row for row, _ in found])
        batched = np.array([inner for _, inner in found], np.bool_)
    if batch.num_rows:
        add_to_queues(batch, batched, queues)


def verified_records(
    chunk: RecordChunk, path: str, stretch: Stretch, findings: Findings, record_crcs: bool
) -> Iterator[tuple[dict[str, object], bool]]:
    """Check one by one the records of a chunk that has a corrupt record, and add findings. Yields a row for each message, with
    True if the message is of a batch. Records with impossible lengths have no row."""
    view = chunk.data.data
    for position, offset in zip(chunk.positions.tolist(), chunk.offsets.tolist(), strict=True):
        left = stretch.segment.end_offset - offset
        if check(view, position, left, offset, verify_body=False) <= 0:
            findings.add("record", path, offset, "its lengths or its place contradict it")
            continue
        if check(view, position, left, offset) <= 0:
            findings.add("record", path, offset, "the body's CRC differs")  # the queue offset is still known
        elif record_crcs and check(view, position, left, offset, verify_record=True) <= 0:
            findings.add("record", path, offset, "the record's own CRC differs")
        facts = queue_facts(view, position, left, offset)
        assert not isinstance(facts, int), "a record that checks has its facts"
        inner = INNER_NUM.search(facts.properties) if facts.sys_flag & BATCH_FLAGS == BATCH_FLAGS else None
        for number in range(min(int(inner[1]), facts.size) if inner else 1):
            yield (
                {
                    "topic": facts.topic.decode("utf-8", "replace"),
                    "queue_id": facts.queue_id,
                    "queue_offset": facts.queue_offset + number,
                    "physical_offset": offset,
                    "store_size": facts.size,
                    "sys_flag": facts.sys_flag & ~BATCH_FLAGS if inner else facts.sys_flag,
                },
                inner is not None,
            )


def add_to_queues(batch: pa.RecordBatch, batched: NDArray[np.bool_], queues: QueueEntriesCheck) -> None:
    """Add the messages that have a queue offset, by queue. `batched` messages have no entry in a plain consume queue."""
    flags = np.asarray(batch.column("sys_flag")).astype(np.int64)
    kinds = flags & TRANSACTION_MASK
    counted = ((kinds == 0) | (kinds == TRANSACTION_COMMIT)) & (flags & INNER_BATCH == 0)
    topics = batch.column("topic").dictionary_encode()
    names = topics.dictionary.to_pylist()
    codes = np.asarray(topics.indices).astype(np.int64) << 32 | np.asarray(batch.column("queue_id")).astype(
        np.uint32
    )
    offsets, physical, sizes = (
        np.asarray(batch.column(name)).astype(np.int64)
        for name in ("queue_offset", "physical_offset", "store_size")
    )
    rows = np.flatnonzero(counted)
    if not len(rows):
        return
    order = rows[np.argsort(codes[rows], kind="stable")]
    found, starts = np.unique(codes[order], return_index=True)
    for code, places in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
        records = QueueRecords(offsets[places], physical[places], sizes[places], ~batched[places])
        queues.add((names[code >> 32], code & 0xFFFFFFFF), records)


def check_small_files(store: StoreSnapshot, findings: Findings) -> None:
    """Check the checkpoint, the source of epochs, and index files: each must be whole and belong to this log."""
    check_checkpoint(store, findings)
    for epoch, start in store.epochs:
        if store.min_offset < start < store.bound and not begins_at(store, start):
            findings.add(
                "epoch file",
                store.files.shown(store.log.epochs_name),
                start,
                f"epoch {epoch} starts where no record begins",
            )
    check_indexes(store, findings)


def check_checkpoint(store: StoreSnapshot, findings: Findings) -> None:
    path = store.files.shown("checkpoint")
    try:
        page = store.files.read("checkpoint")
    except FileNotFoundError:  # a ledger has its own checkpoint
        return
    segments = store.segments
    with suppress(StoreUnreadable):  # a segment in the middle is missing, which the walk reports
        segments = store.log.segments(store.files)  # listed later: a running broker has written more
    end = segments[-1].end_offset if segments else 0
    if len(page) != 4096:
        findings.add("checkpoint", path, None, f"is {len(page)} bytes long instead of 4096")
    for name, value in zip(
        ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp"), CHECKPOINT.unpack_from(page), strict=False
    ):  # fmt: skip
        if value < 0:
            findings.add("checkpoint", path, None, f"{name} is {value}")
    confirm = CHECKPOINT.unpack_from(page)[4]
    if confirm > end:
        findings.add("checkpoint", path, confirm, f"its confirm offset lies beyond the log's end, {end}")


def check_indexes(store: StoreSnapshot, findings: Findings) -> None:
    """Check that the headers of index files are in log order and name existing records."""
    try:
        names = [entry for entry in store.files.entries("index") if entry.size_bytes]
    except FileNotFoundError:
        return
    before = -1
    for entry in names:
        path = store.files.shown(f"index/{entry.name}")
        header = bytearray(INDEX_HEADER.size)
        with closing(store.files.open(f"index/{entry.name}")) as file:
            held = file.read_into(memoryview(header), 0)
        if held < INDEX_HEADER.size:
            findings.add("index", path, None, f"is {held} bytes long, too short for a header")
            continue
        begin_ms, end_ms, begin, end, _, count = INDEX_HEADER.unpack(header)
        if count <= 1:
            continue  # empty so far
        if begin_ms > end_ms or begin > end or INDEX_HEADER.size + 20 * count > entry.size_bytes:
            findings.add(
                "index", path, begin, f"its header contradicts itself: {INDEX_HEADER.unpack(header)}"
            )
        if begin < before:
            findings.add("index", path, begin, f"begins before the file in front of it ends, at {before}")
        before = end
        for offset in (begin, end):
            if store.min_offset <= offset < store.bound and not begins_at(store, boundary_of(store, offset)):
                findings.add("index", path, offset, "names an offset where no record begins")
