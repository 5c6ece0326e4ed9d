"""Statistics of the sizes of many messages by key, in bounded memory. Count, sum, minimum and maximum are exact; quantiles are
at most 3 % too high.

Invariant: a partial table (the statistics of a part of the messages) has one row for each key and size bucket that occurs.
Partial tables are merged by adding up rows with equal key and bucket. The order of merging matters only if there are more than
KEYS_HELD_MAX keys. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

KEYS_MAX = 10_000
"""Limit of keys of one dimension in the result. All other keys become one key."""
KEYS_HELD_MAX = 100_000
"""Limit of keys of one dimension while counting. The result is exact unless there are more."""
OTHER = "(other)"
EXACT_BELOW = 64
STEPS = 32
"""Buckets between two powers of two, above EXACT_BELOW."""
STEP_BITS = 5
KEY = ["key", "sub"]
MERGED = [("count", "sum"), ("bytes", "sum"), ("least", "min"), ("most", "max")]
EMPTY = pa.schema(
    [
        ("key", pa.string()),
        ("sub", pa.int64()),
        ("bucket", pa.int16()),
        ("count", pa.int64()),
        ("bytes", pa.int64()),
        ("least", pa.int64()),
        ("most", pa.int64()),
    ]
).empty_table()


@dataclass(frozen=True)
class Sizes:
    """One key's statistics; sizes are of records in bytes, p50 and p99 within 3 % above."""

    key: str
    sub: int
    count: int
    bytes: int
    least: int
    average: float
    p50: int
    p99: int
    most: int


def bucket_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bucket of each size. Each size below EXACT_BELOW has its own bucket. Above, each power of two has STEPS buckets."""
    exponents = np.frexp(np.maximum(sizes, 1).astype(np.float64))[1].astype(np.int64) - 1
    coarse = (
        EXACT_BELOW
        + (exponents - 6) * STEPS
        + ((sizes >> np.maximum(exponents - STEP_BITS, 0)) & (STEPS - 1))
    )
    buckets: NDArray[np.int64] = np.where(sizes < EXACT_BELOW, sizes, coarse)
    return buckets


def largest_in(bucket: int) -> int:
    """The greatest size that falls into a bucket."""
    if bucket < EXACT_BELOW:
        return bucket
    power, step = divmod(bucket - EXACT_BELOW, STEPS)
    return ((STEPS + step + 1) << (power + 6 - STEP_BITS)) - 1


def partial(keys: pa.Array, subs: NDArray[np.int64], sizes: NDArray[np.int64]) -> pa.Table:
    """A partial table, from a table with one row for each message."""
    rows = pa.table(
        {"key": keys, "sub": pa.array(subs), "bucket": pa.array(bucket_of(sizes), pa.int16()), "size": pa.array(sizes)}
    )  # fmt: skip
    made = rows.group_by([*KEY, "bucket"]).aggregate(
        [("size", "count"), ("size", "sum"), ("size", "min"), ("size", "max")]
    )
    return made.rename_columns(EMPTY.column_names)


def merge(parts: Iterable[pa.Table]) -> pa.Table:
    """Merge partial tables into one, with at most KEYS_HELD_MAX keys (see `limited`)."""
    return limited(grouped(pa.concat_tables([EMPTY, *parts])), KEYS_HELD_MAX)


def limited(made: pa.Table, keys_max: int) -> pa.Table:
    """The same partial table. If it has more than `keys_max` keys, those with the fewest messages are joined as OTHER."""
    counts = made.group_by(KEY).aggregate([("count", "sum")])
    if counts.num_rows <= keys_max:
        return made
    order = [("count_sum", "descending"), ("key", "ascending"), ("sub", "ascending")]
    kept = counts.sort_by(order).slice(0, keys_max - 1).select(KEY)
    kept = kept.append_column("kept", pa.array([True] * kept.num_rows))
    joined = made.join(kept, KEY)
    is_kept = pc.fill_null(joined.column("kept"), False)
    folded = (
        joined.set_column(0, "key", pc.if_else(is_kept, joined.column("key"), OTHER))
        .set_column(1, "sub", pc.if_else(is_kept, joined.column("sub"), pa.scalar(0, pa.int64())))
        .drop_columns(["kept"])
    )
    return grouped(folded)


def grouped(table: pa.Table) -> pa.Table:
    return table.group_by([*KEY, "bucket"]).aggregate(MERGED).rename_columns(EMPTY.column_names)


def without_sub(table: pa.Table) -> pa.Table:
    """The same part, by key without sub."""
    return merge([table.set_column(1, "sub", pa.array(np.zeros(table.num_rows, np.int64)))])


def summaries(table: pa.Table) -> list[Sizes]:
    """The statistics by key and sub, for at most KEYS_MAX keys."""
    rows = (
        limited(table, KEYS_MAX)
        .sort_by([("key", "ascending"), ("sub", "ascending"), ("bucket", "ascending")])
        .to_pylist()
    )
    found: list[Sizes] = []
    start = 0
    for end in range(1, len(rows) + 1):
        if end == len(rows) or (rows[end]["key"], rows[end]["sub"]) != (
            rows[start]["key"],
            rows[start]["sub"],
        ):
            found.append(sizes_of(rows[start:end]))
            start = end
    return found


def sizes_of(rows: Sequence[dict[str, int]]) -> Sizes:
    """Statistics of one key, from its buckets in rising order."""
    count, total = sum(row["count"] for row in rows), sum(row["bytes"] for row in rows)
    least, most = min(row["least"] for row in rows), max(row["most"] for row in rows)
    return Sizes(
        key=str(rows[0]["key"]),
        sub=rows[0]["sub"],
        count=count,
        bytes=total,
        least=least,
        average=total / count,
        p50=quantile(rows, count, 0.50, most),
        p99=quantile(rows, count, 0.99, most),
        most=most,
    )


def quantile(rows: Sequence[dict[str, int]], count: int, share: float, most: int) -> int:
    wanted = max(1, -int(-count * share // 1))
    seen = 0
    for row in rows:
        seen += row["count"]
        if seen >= wanted:
            return min(largest_in(row["bucket"]), row["most"], most)
    raise AssertionError("the buckets of a key hold all its messages")
