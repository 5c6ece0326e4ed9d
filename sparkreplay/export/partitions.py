"""The partition of a row: a folder `topic=.../day=YYYY-MM-DD`, which Hive, Spark and pyarrow read as a partition.

Invariant: a folder's name is one path component whatever the topic is, and different topics have different folders. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkreplay.records.rowfilter import FilteredColumns, RowFilter, Rows

NAME_BYTES_MAX = 200
"""Limit of a topic in a folder's name. File systems allow 255 bytes for the whole name."""
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
HASH_DIGITS = 16
CUT_ESCAPE = re.compile("%.?$")
DAY_MS = 86_400_000
DAY_US = DAY_MS * 1000
NO_DAY = -(1 << 26)
"""The day of a time that microseconds cannot hold; such a time is null."""


class ExportPartition(NamedTuple):
    """A topic and a day. `day` is the day of a row's store time, counted from 1970-01-01 in UTC."""

    topic: str
    day: int

    @property
    def day_text(self) -> str:
        return NO_VALUE if self.day == NO_DAY else str(np.datetime64(self.day, "D"))

    @property
    def folder(self) -> str:
        return f"topic={escaped(self.topic)}/day={self.day_text}"


def escaped(name: str) -> str:
    """The name as one path component: all characters but letters, digits, `_`, `.` and `-` become %XX. A name that is too long
    is cut and ends with a hash. The manifest has the whole name."""
    text = quote(name, safe="").replace("~", "%7E")
    if not text:
        return NO_VALUE
    if text == NO_VALUE:
        return text.replace("_", "%5F", 1)
    if len(text) > NAME_BYTES_MAX:
        whole = CUT_ESCAPE.sub("", text[: NAME_BYTES_MAX - HASH_DIGITS - 1])
        return f"{whole}~{sha256(name.encode()).hexdigest()[:HASH_DIGITS]}"
    return text


@dataclass(frozen=True)
class OrderedByPartition(RowFilter):
    """Orders the rows of a chunk by topic and day, and the rows of each partition by log order. The decoder copies every row
    anyway, so this costs no further copy."""

    def choose(self, columns: FilteredColumns, rows: Rows) -> Rows:
        rows = super().choose(columns, rows)
        if not len(rows):
            return rows
        topics = columns.topics_of(rows).dictionary_encode()
        days = columns.native("store_timestamp")[rows] // DAY_MS
        if len(topics.dictionary) == 1 and days.min() == days.max():
            return rows
        return rows[np.lexsort((days, np.asarray(topics.indices)))]


def by_partition(batch: pa.RecordBatch) -> list[tuple[ExportPartition, pa.RecordBatch]]:
    """Split a batch that is ordered by partition into the rows of each partition. The batch needs the columns topic and
    store_timestamp."""
    topics = batch.column("topic").dictionary_encode()
    times = pc.fill_null(batch.column("store_timestamp").cast(pa.int64()), NO_DAY * DAY_US)
    days = np.asarray(times) // DAY_US
    names, codes = topics.dictionary.to_pylist(), np.asarray(topics.indices)
    changes = (codes[1:] != codes[:-1]) | (days[1:] != days[:-1])
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()]
    return [
        (ExportPartition(names[codes[start]], int(days[start])), batch.slice(start, end - start))
        for start, end in zip(starts, [*starts[1:], len(codes)], strict=True)
    ]
