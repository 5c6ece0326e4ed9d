"""Filters of a chunk's rows by fixed fields and topics, applied before any body is copied.

Invariant: a filter is exact: it keeps a row if and only if every one of its conditions holds for that row. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Rows = NDArray[np.int64]


class FilteredColumns(Protocol):
    """The columns for a filter: the records of one chunk (sparkreplay.records.decode.ChunkColumns)."""

    def native(self, name: str) -> NDArray[np.signedinteger]:
        """A fixed field of every record, by its name in FIXED_FIELDS. Times are in ms."""

    def topics_of(self, rows: Rows) -> pa.Array:
        """The topic of each of `rows`."""


@dataclass(frozen=True)
class Between:
    """Keeps rows with low <= field <= high; None means no limit."""

    field: str
    low: int | None = None
    high: int | None = None

    def mask(self, columns: FilteredColumns, rows: Rows) -> NDArray[np.bool_]:
        values = columns.native(self.field)[rows]
        kept = np.ones(len(rows), np.bool_)
        if self.low is not None:
            kept &= values >= self.low
        if self.high is not None:
            kept &= values <= self.high
        return kept


@dataclass(frozen=True)
class OneOfFilter:
    """Keeps rows whose field is one of some numbers."""

    field: str
    numbers: tuple[int, ...]

    def mask(self, columns: FilteredColumns, rows: Rows) -> NDArray[np.bool_]:
        return np.isin(columns.native(self.field)[rows], np.array(self.numbers, np.int64))


@dataclass(frozen=True)
class TopicOneOf:
    topics: tuple[str, ...]

    def mask(self, columns: FilteredColumns, rows: Rows) -> NDArray[np.bool_]:
        return as_mask(pc.is_in(columns.topics_of(rows), pa.array(self.topics, pa.string())))


@dataclass(frozen=True)
class TopicMatches:
    """Keeps rows whose whole topic matches a regular expression. Each distinct topic of a chunk is matched once."""

    pattern: str

    def mask(self, columns: FilteredColumns, rows: Rows) -> NDArray[np.bool_]:
        topics = columns.topics_of(rows)
        matching = [name for name in topics.unique().to_pylist() if re.fullmatch(self.pattern, name)]
        return as_mask(pc.is_in(topics, pa.array(matching, pa.string())))


@dataclass(frozen=True)
class NegatedFilter:
    condition: Condition

    def mask(self, columns: FilteredColumns, rows: Rows) -> NDArray[np.bool_]:
        return ~self.condition.mask(columns, rows)


@dataclass(frozen=True)
class QueueWindows:
    """Keeps rows with low <= field < high, for limits per (topic, queue id). A queue that is not named has no limits."""

    field: str
    windows: tuple[tuple[tuple[str, int], tuple[int | None, int | None]], ...]

    def mask(self, columns: FilteredColumns, rows: Rows) -> NDArray[np.bool_]:
        by_queue = dict(self.windows)
        topics = columns.topics_of(rows).dictionary_encode()
        names = topics.dictionary.to_pylist()
        queue_ids = columns.native("queue_id")[rows].astype(np.int64)
        codes = np.asarray(topics.indices).astype(np.int64) << 32 | queue_ids & 0xFFFFFFFF
        values = columns.native(self.field)[rows]
        kept = np.ones(len(rows), np.bool_)
        distinct, first_rows, queue_of = np.unique(codes, return_index=True, return_inverse=True)
        for place, (code, row) in enumerate(zip(distinct.tolist(), first_rows.tolist(), strict=True)):
            low, high = by_queue.get((names[code >> 32], int(queue_ids[row])), (None, None))
            if low is not None:
                kept &= (queue_of != place) | (values >= low)
            if high is not None:
                kept &= (queue_of != place) | (values < high)
        return kept


Condition = Between | OneOfFilter | TopicOneOf | TopicMatches | NegatedFilter | QueueWindows


@dataclass(frozen=True)
class RowFilter:
    """Keeps rows for which all conditions hold. Cheap conditions are evaluated first."""

    conditions: tuple[Condition, ...]

    def choose(self, columns: FilteredColumns, rows: Rows) -> Rows:
        """The rows of `rows` that are kept, in order; `rows` itself if all are."""
        for condition in self.conditions:
            if not len(rows):
                break
            mask = condition.mask(columns, rows)
            if not mask.all():
                rows = rows[mask]
        return rows


def as_mask(booleans: pa.Array) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = np.asarray(booleans)
    return mask
