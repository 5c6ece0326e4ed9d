"""What a committed log holds: per topic and queue the rows, bytes, offsets and times."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sparkreplay.errors import LogCorrupted
from sparkreplay.reader import ReadPlan, read_stretch
from sparkreplay.schema import arrow_schema

SCAN_COLUMNS = ("broker_name", "topic", "queue_id", "queue_offset", "store_timestamp", "store_size")
GROUP = ["broker_name", "topic", "queue_id"]
AGGREGATES = [
    ("store_size", "count"), ("store_size", "sum"), ("queue_offset", "min"), ("queue_offset", "max"),
    ("store_timestamp", "min"), ("store_timestamp", "max"),
]  # fmt: skip
MERGED = [
    ("store_size_count", "sum"), ("store_size_sum", "sum"), ("queue_offset_min", "min"), ("queue_offset_max", "max"),
    ("store_timestamp_min", "min"), ("store_timestamp_max", "max"),
]  # fmt: skip


@dataclass(frozen=True)
class QueueSummary:
    """One queue's rows; offsets are inclusive, times are ISO 8601 in UTC."""

    broker_name: str
    topic: str
    queue_id: int
    rows: int
    bytes: int
    first_offset: int
    last_offset: int
    first_stored: str
    last_stored: str


def scan_stretch(read: ReadPlan, number: int) -> pa.Table:
    """The summary of one stretch; many are merged by `merge`."""
    empty = pa.Table.from_batches([], arrow_schema(SCAN_COLUMNS))
    parts = [
        pa.Table.from_batches([batch]).group_by(GROUP).aggregate(AGGREGATES)
        for batch in read_stretch(read, read.stretches[number])
    ]
    return merge(parts or [empty.group_by(GROUP).aggregate(AGGREGATES)])


def merge(parts: list[pa.Table]) -> pa.Table:
    merged = pa.concat_tables(parts).group_by(GROUP).aggregate(MERGED)
    return merged.rename_columns([*GROUP, *(name for name, _ in MERGED)])


def summaries(table: pa.Table) -> list[QueueSummary]:
    """One row a queue, by broker set, topic and queue id."""
    return [
        QueueSummary(
            broker_name=row["broker_name"],
            topic=row["topic"],
            queue_id=row["queue_id"],
            rows=row["store_size_count"],
            bytes=row["store_size_sum"],
            first_offset=row["queue_offset_min"],
            last_offset=row["queue_offset_max"],
            first_stored=row["store_timestamp_min"].isoformat(),
            last_stored=row["store_timestamp_max"].isoformat(),
        )
        for row in table.sort_by([(name, "ascending") for name in GROUP]).to_pylist()
    ]


def require_gapless(read: ReadPlan, found: list[QueueSummary]) -> None:
    """Every queue's offsets between its first and last must be there once each; raises LogCorrupted."""
    for source in read.sources:
        if not source.selection.committed_only:
            continue
        for queue in found:
            if queue.broker_name != source.store.broker_name:
                continue
            if queue.rows != queue.last_offset - queue.first_offset + 1:
                raise LogCorrupted(
                    source.store.root,
                    source.start,
                    f"queue {queue.topic}/{queue.queue_id} holds {queue.rows} rows for the offsets "
                    f"{queue.first_offset} to {queue.last_offset}",
                )
