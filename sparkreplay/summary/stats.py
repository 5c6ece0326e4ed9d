"""Counts and sizes of messages by queue, producer and hour, added up in the worker that reads them.

Invariant: memory does not grow with the log, because few rows are held at a time and the number of keys is limited (see
sparkreplay.summary.sizes)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkreplay.read.reader import ReadPlan, read_stretch
from sparkreplay.summary.sizes import merge, partial

COLUMNS = ("topic", "queue_id", "store_timestamp", "store_size", "born_host", "properties_raw")
PRODUCER_GROUP = "PGROUP\x01"
PRODUCER_GROUP_VALUE = "(?:^|\x02)PGROUP\x01(?P<value>[^\x02]+)"
PORT = r":\d+$"
HOUR_US = 3_600_000_000
NO_HOUR = -(1 << 31)
"""The hour of a time that microseconds cannot hold; such a time is null."""
PORTION_ROWS = 250_000
DIMENSIONS = ("queue", "producer", "hour")
QUEUES_OF_A_SOURCE = 1 << 32
Parts = dict[str, pa.Table]


def stats_stretch(read: ReadPlan, number: int) -> Parts:
    """The statistics of one stretch: a partial table for each dimension, such as queue or hour."""
    stretch = read.stretches[number]
    return merge_parts(parts_of(table, stretch.source) for table in portions(read_stretch(read, stretch)))


def merge_parts(parts: Iterable[Parts]) -> Parts:
    listed = list(parts)
    return {name: merge(part[name] for part in listed) for name in DIMENSIONS}


def portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The counted columns, for some 100,000 rows at a time."""
    held: list[pa.Table] = []
    rows = 0
    for batch in batches:
        held.append(counted(batch))
        rows += batch.num_rows
        if rows >= PORTION_ROWS:
            yield pa.concat_tables(held)
            held, rows = [], 0
    if held:
        yield pa.concat_tables(held)


def counted(batch: pa.RecordBatch) -> pa.Table:
    columns = {name: batch.column(name) for name in COLUMNS[:4]}
    return pa.table({**columns, "producer": producers(batch)})


def producers(batch: pa.RecordBatch) -> pa.Array:
    """The producer group if a record names one, as transactional messages do; else the IP address of the sender."""
    hosts = batch.column("born_host").dictionary_encode()
    addresses = pc.replace_substring_regex(hosts.dictionary, PORT, "").take(hosts.indices)
    raw = batch.column("properties_raw")
    naming = pc.match_substring(raw, PRODUCER_GROUP)
    if not pc.any(naming).as_py():
        return addresses
    groups = pc.extract_regex(raw, PRODUCER_GROUP_VALUE).field("value")
    texts = pa.array([value.decode("utf-8", "replace") if value else None for value in groups.to_pylist()])
    return pc.if_else(pc.is_valid(texts), texts, addresses)


def parts_of(rows: pa.Table, source: int) -> Parts:
    """Make the parts. Queues of different broker sets are kept apart, see queue_of."""
    sizes = np.asarray(rows.column("store_size")).astype(np.int64)
    none = np.zeros(len(sizes), np.int64)
    times = pc.fill_null(rows.column("store_timestamp").cast(pa.int64()), NO_HOUR * HOUR_US)
    hours, codes = np.unique(np.asarray(times) // HOUR_US, return_inverse=True)
    names = pa.array([hour_text(hour) for hour in hours.tolist()], pa.string())
    queue_ids = np.asarray(rows.column("queue_id")).astype(np.uint32).astype(np.int64)
    return {
        "queue": partial(rows.column("topic"), source * QUEUES_OF_A_SOURCE + queue_ids, sizes),
        "producer": partial(rows.column("producer"), none, sizes),
        "hour": partial(names.take(pa.array(codes)), none, sizes),
    }


def queue_of(sub: int) -> tuple[int, int]:
    """The number of the source and the queue id, from the second part of a key of the dimension `queue`."""
    return divmod(sub, QUEUES_OF_A_SOURCE)


def hour_text(hour: int) -> str:
    return "(no time)" if hour == NO_HOUR else f"{np.datetime64(hour, 'h')}:00"


def rows_in(parts: Parts) -> int:
    return int(pc.sum(parts["hour"].column("count")).as_py() or 0)
