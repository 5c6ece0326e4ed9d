"""The content of a committed log: rows, bytes, offsets and times for each topic, queue and kind of record.

Invariant: every record of the range, even one that a read leaves out, is counted under exactly one kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from messagestore.record import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from messagestore.systemtopics import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, is_system_topic
from sparkreplay.read.reader import ReadPlan, read_stretch

SCAN_COLUMNS = (
    "broker_name",
    "topic",
    "queue_id",
    "queue_offset",
    "store_timestamp",
    "store_size",
    "sys_flag",
)
GROUP = ["broker_name", "topic", "queue_id", "transaction"]
AGGREGATES = [
    ("store_size", "count"), ("store_size", "sum"), ("queue_offset", "min"), ("queue_offset", "max"),
    ("store_timestamp", "min"), ("store_timestamp", "max"),
]  # fmt: skip
MERGED = [
    ("store_size_count", "sum"), ("store_size_sum", "sum"), ("queue_offset_min", "min"), ("queue_offset_max", "max"),
    ("store_timestamp_min", "min"), ("store_timestamp_max", "max"),
]  # fmt: skip
MESSAGE = "message"
SPECIAL_TOPICS = {
    HALF_TOPIC: "half",
    OP_HALF_TOPIC: "half-op",
    SCHEDULE_TOPIC: "delayed",
}
INNER_BATCH = 0x80
"""A flag of sysFlag. A record with it holds many queue offsets, so gaps are unknown."""
UNDECIDED = {TRANSACTION_PREPARED: "prepared", TRANSACTION_ROLLBACK: "rollback"}
KINDS = (MESSAGE, "prepared", "rollback", "half", "half-op", "delayed", "system")
"""A read returns `message` by default, and `prepared` and `rollback` with transactions=all. The other kinds are in system
topics, which are read with includeSystemTopics=true or by the topic's name."""


@dataclass(frozen=True)
class QueueSummary:
    """Records of one kind in one queue; offsets are inclusive, times are ISO 8601 in UTC."""

    broker_name: str
    topic: str
    queue_id: int
    kind: str
    rows: int
    bytes: int
    first_offset: int
    last_offset: int
    first_stored: str
    last_stored: str


@dataclass(frozen=True)
class QueueGap:
    """A queue in which an offset between the first and the last is missing or duplicated."""

    broker_name: str
    topic: str
    queue_id: int
    rows: int
    first_offset: int
    last_offset: int

    def __str__(self) -> str:
        expected = self.last_offset - self.first_offset + 1
        return (
            f"queue {self.topic}/{self.queue_id} of {self.broker_name} holds {self.rows} records for the {expected} "
            f"offsets {self.first_offset} to {self.last_offset}; mqreplay verify says where"
        )


def kind_of(topic: str, transaction: int) -> str:
    """The kind of a record, one of KINDS. `transaction` are bits of sysFlag."""
    if transaction & TRANSACTION_MASK in UNDECIDED:
        return UNDECIDED[transaction & TRANSACTION_MASK]
    return SPECIAL_TOPICS.get(topic) or ("system" if is_system_topic(topic) else MESSAGE)


def scan_stretch(read: ReadPlan, number: int) -> pa.Table:
    """The summary of one stretch, with one row per group. `merge` joins several summaries."""
    return merge(summary(batch) for batch in read_stretch(read, read.stretches[number]))


def summary(batch: pa.RecordBatch) -> pa.Table:
    table = pa.Table.from_batches([batch])
    kinds = pc.bit_wise_and(table.column("sys_flag"), pa.scalar(TRANSACTION_MASK | INNER_BATCH, pa.int32()))
    return table.append_column("transaction", kinds).group_by(GROUP).aggregate(AGGREGATES)


def merge(parts: Iterable[pa.Table]) -> pa.Table:
    """One table of the same form; without rows if there are no parts."""
    tables = [part for part in parts if part.num_rows]
    if not tables:
        return pa.table({})
    merged = pa.concat_tables(tables).group_by(GROUP).aggregate(MERGED)
    return merged.rename_columns([*GROUP, *(name for name, _ in MERGED)])


def rows_in(table: pa.Table) -> int:
    return int(pc.sum(table.column("store_size_count")).as_py()) if table.num_rows else 0


def summaries(table: pa.Table) -> list[QueueSummary]:
    """One row for each queue and kind, ordered by broker set, topic and queue id."""
    if not table.num_rows:
        return []
    return [
        QueueSummary(
            broker_name=row["broker_name"],
            topic=row["topic"],
            queue_id=row["queue_id"],
            kind=kind_of(row["topic"], row["transaction"]),
            rows=row["store_size_count"],
            bytes=row["store_size_sum"],
            first_offset=row["queue_offset_min"],
            last_offset=row["queue_offset_max"],
            first_stored=moment(row["store_timestamp_min"]),
            last_stored=moment(row["store_timestamp_max"]),
        )
        for row in with_numbers(table.sort_by([(name, "ascending") for name in GROUP])).to_pylist()
    ]


def with_numbers(table: pa.Table) -> pa.Table:
    """Times as numbers of µs, because a log may contain years that a datetime cannot hold."""
    for name in ("store_timestamp_min", "store_timestamp_max"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table.column(name).cast(pa.int64()))
    return table


def moment(us: int | None) -> str:
    """A time as `2026-11-21T10:00:00.000Z`; empty for an unknown time."""
    return "" if us is None else f"{np.datetime64(us, 'us').astype('datetime64[ms]')}Z"


def gaps(table: pa.Table) -> list[QueueGap]:
    """Queues with a missing or duplicated offset. Only records of no transaction and committed records have queue offsets.
    Queues of batches are left out."""
    if not table.num_rows:
        return []
    counted = pc.is_in(table.column("transaction"), pa.array([0, TRANSACTION_COMMIT], pa.int32()))
    queues = (
        table.filter(counted)
        .group_by(GROUP[:3])
        .aggregate([("store_size_count", "sum"), ("queue_offset_min", "min"), ("queue_offset_max", "max")])
    )
    found = [
        QueueGap(
            row["broker_name"],
            row["topic"],
            row["queue_id"],
            row["store_size_count_sum"],
            row["queue_offset_min_min"],
            row["queue_offset_max_max"],
        )
        for row in queues.sort_by([(name, "ascending") for name in GROUP[:3]]).to_pylist()
    ]
    batches = (
        table.filter(pc.greater_equal(table.column("transaction"), INNER_BATCH)).select(GROUP[:3]).to_pylist()
    )
    batched = {tuple(row.values()) for row in batches}
    found = [gap for gap in found if (gap.broker_name, gap.topic, gap.queue_id) not in batched]
    return [gap for gap in found if gap.rows != gap.last_offset - gap.first_offset + 1]
