"""Where a row goes: folders `topic=.../day=YYYY-MM-DD`, as Hive, Spark and pyarrow name partitions and read them again.

Invariant: a folder's name is one path component whatever a topic is called, and different topics have different folders."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

NAME_BYTES_MAX = 200
"""Of a topic as it stands in a folder's name; file systems take 255 for the whole name."""
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
HASH_DIGITS = 16
CUT_ESCAPE = re.compile("%.?$")
DAY_US = 86_400_000_000


class Partition(NamedTuple):
    """`day` counts days since 1970-01-01, in UTC, of the time when a row was stored."""

    topic: str
    day: int

    @property
    def day_text(self) -> str:
        return str(np.datetime64(self.day, "D"))

    @property
    def folder(self) -> str:
        return f"topic={escaped(self.topic)}/day={self.day_text}"


def escaped(name: str) -> str:
    """One path component: all but letters, digits, `_`, `.`, `-` as %XX. What would be too long is cut and told apart by
    its hash; the manifest has the whole name."""
    text = quote(name, safe="").replace("~", "%7E")
    if not text:
        return NO_VALUE
    if text == NO_VALUE:
        return text.replace("_", "%5F", 1)
    if len(text) > NAME_BYTES_MAX:
        whole = CUT_ESCAPE.sub("", text[: NAME_BYTES_MAX - HASH_DIGITS - 1])
        return f"{whole}~{sha256(name.encode()).hexdigest()[:HASH_DIGITS]}"
    return text


def by_partition(batch: pa.RecordBatch) -> list[tuple[Partition, pa.RecordBatch]]:
    """The rows of each partition, in their order. Needs the columns topic and store_timestamp."""
    topics = batch.column("topic").dictionary_encode()
    days, day_codes = np.unique(
        np.asarray(batch.column("store_timestamp").cast(pa.int64())) // DAY_US, return_inverse=True
    )
    names = topics.dictionary.to_pylist()
    codes: NDArray[np.int64] = np.asarray(topics.indices).astype(np.int64) * len(days) + day_codes
    if len(names) * len(days) == 1:
        return [(Partition(names[0], int(days[0])), batch)]
    order = np.argsort(codes, kind="stable")
    found, starts = np.unique(codes[order], return_index=True)
    ordered = batch.take(pa.array(order))
    ends = [*starts[1:].tolist(), len(order)]
    return [
        (Partition(names[code // len(days)], int(days[code % len(days)])), ordered.slice(start, end - start))
        for code, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True)
    ]
