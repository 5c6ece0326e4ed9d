"""Rows that Spark writes as Parquet: the size of their store, their export, and what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

SEGMENT_BYTES = 16384
ROWS = 300


def written(output: Path) -> list[tuple[int, bytes]]:
    """Every row of every part file, in the log's order."""
    table = pq.read_table(output, columns=["physical_offset", "body"])
    return sorted(zip(*(table[name].to_pylist() for name in ("physical_offset", "body")), strict=True))


def export(rows: Any, output: Path) -> Path:
    rows.write.parquet(str(output))
    return output
