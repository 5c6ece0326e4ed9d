"""Check the records of each queue in log order: offsets have no gap, and each record has a consume queue entry.

Invariant: memory is bounded, because only a limited number of records is held before they are compared with their entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sparkreplay.check.findings import Findings
from sparkreplay.store.files import Files
from sparkreplay.store.logs import log_min_now
from sparkreplay.store.queueentries import BATCH_FOLDER, FOLDER, QueueFiles, written

Queue = tuple[str, int]
HELD_MAX = 500_000
STRAY_ENTRIES_READ = 1 << 20


@dataclass(frozen=True)
class QueueRecords:
    """Records of one queue, in log order: queue offset, physical offset and size of each."""

    queue_offsets: NDArray[np.int64]
    physical_offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    listed: NDArray[np.bool_]
    """Which records have their own entry in a plain consume queue. Records of inner batches have none."""

    def with_entries(self) -> QueueRecords:
        kept = self.listed
        if kept.all():
            return self
        return QueueRecords(
            self.queue_offsets[kept], self.physical_offsets[kept], self.sizes[kept], kept[kept]
        )


@dataclass
class QueueRun:
    """A part of a queue without a gap: queue offsets [first, end). The record of the first offset is at `first_at`."""

    first: int
    end: int
    first_at: int


@dataclass
class QueueEntriesCheck:
    """Checks the records of one stretch. `join` joins the resulting `runs` with those of other stretches."""

    files: Files
    findings: Findings
    against_entries: bool
    runs: dict[Queue, QueueRun] = field(default_factory=dict)
    held: dict[Queue, list[QueueRecords]] = field(default_factory=dict)
    count: int = 0

    @cached_property
    def batch_topics(self) -> frozenset[str]:
        """Topics whose queues are upstream's batch consume queues, which are not checked."""
        try:
            return frozenset(entry.name for entry in self.files.entries(BATCH_FOLDER))
        except FileNotFoundError:
            return frozenset()

    def add(self, queue: Queue, records: QueueRecords) -> None:
        self.held.setdefault(queue, []).append(records)
        self.count += len(records.queue_offsets)
        if self.count >= HELD_MAX:
            self.flush()

    def flush(self) -> None:
        for queue, parts in self.held.items():
            records = QueueRecords(
                np.concatenate([part.queue_offsets for part in parts]),
                np.concatenate([part.physical_offsets for part in parts]),
                np.concatenate([part.sizes for part in parts]),
                np.concatenate([part.listed for part in parts]),
            )
            self.check_order(queue, records)
            if self.against_entries and queue[0] not in self.batch_topics:
                self.check_entries(queue, records.with_entries())
        self.held.clear()
        self.count = 0

    def check_order(self, queue: Queue, records: QueueRecords) -> None:
        run = self.runs.get(queue)
        first = int(records.queue_offsets[0])
        expected = np.concatenate([[first if run is None else run.end], records.queue_offsets[:-1] + 1])
        for place in np.flatnonzero(records.queue_offsets != expected).tolist():
            self.findings.add(
                "queue offsets",
                f"{queue[0]}/{queue[1]}",
                int(records.physical_offsets[place]),
                f"queue offset {records.queue_offsets[place]} is found where {expected[place]} is expected",
            )
        end = int(records.queue_offsets[-1]) + 1
        if run is None:
            self.runs[queue] = QueueRun(first, end, int(records.physical_offsets[0]))
        else:
            run.end = end

    def check_entries(self, queue: Queue, records: QueueRecords) -> None:
        """Check that each record's entry has the place and size of the record."""
        if not len(records.queue_offsets):
            return
        files = QueueFiles(self.files, *queue)
        first, last = int(records.queue_offsets.min()), int(records.queue_offsets.max())
        if last - first >= 2 * len(records.queue_offsets) + 1000:  # impossible offsets, already reported
            return
        entries = files.entries(first, last - first + 1)[records.queue_offsets - first]
        physical, sizes = entries["physical_offset"].astype(np.int64), entries["size"].astype(np.int64)
        wrong = np.flatnonzero((physical != records.physical_offsets) | (sizes != records.sizes))
        if len(wrong):  # retention may have deleted the entries with their records
            wrong = wrong[records.physical_offsets[wrong] >= log_min_now(self.files)]
        if not len(wrong):
            return
        place = int(wrong[0])
        actual = "has no entry" if sizes[place] == 0 else f"has the entry ({physical[place]}, {sizes[place]})"
        self.findings.add(
            "consume queue",
            files.path,
            int(records.physical_offsets[place]),
            f"queue offset {records.queue_offsets[place]} {actual}, its record is "
            f"({records.physical_offsets[place]}, {records.sizes[place]}); {len(wrong)} of {len(entries)} entries differ",
        )


def join(parts: Iterable[Mapping[Queue, QueueRun]], findings: Findings) -> dict[Queue, QueueRun]:
    """The runs of a whole log, joined from the runs of its stretches in order. A gap between two runs is a finding."""
    joined: dict[Queue, QueueRun] = {}
    for part in parts:
        for queue, run in part.items():
            before = joined.get(queue)
            if before is None:
                joined[queue] = QueueRun(run.first, run.end, run.first_at)
                continue
            if run.first != before.end:
                findings.add(
                    "queue offsets",
                    f"{queue[0]}/{queue[1]}",
                    run.first_at,
                    f"queue offset {run.first} is found where {before.end} is expected",
                )
            before.end = run.end
    return joined


def check_strays(
    files: Files, runs: Mapping[Queue, QueueRun], start: int, end: int, findings: Findings
) -> None:
    """Find entries that name a record of [start, end) which the log does not hold for the entry's queue."""
    for queue in queues_on_disk(files):
        queue_files = QueueFiles(files, *queue)
        first, past = queue_files.extent()
        run = runs.get(queue)
        ranges = [(first, past)] if run is None else [(first, run.first), (run.end, past)]
        for low, high in ranges:
            low = max(low, first)
            for at in range(low, high, STRAY_ENTRIES_READ):
                entries = queue_files.entries(at, min(high - at, STRAY_ENTRIES_READ))
                strays = np.flatnonzero(written(entries, start, end))
                if len(strays):
                    entry = entries[strays[0]]
                    findings.add(
                        "consume queue",
                        queue_files.path,
                        int(entry["physical_offset"]),
                        f"queue offset {at + int(strays[0])} names a record that the log does not hold for this "
                        f"queue; {len(strays)} such entries",
                    )


def queues_on_disk(files: Files) -> list[Queue]:
    found: list[Queue] = []
    for topic in files.entries(FOLDER):
        if topic.is_folder:
            found += [
                (topic.name, int(queue.name))
                for queue in files.entries(f"{FOLDER}/{topic.name}")
                if queue.is_folder and queue.name.isascii() and queue.name.isdecimal()
            ]
    return found
