"""Writes the committed rows as Parquet, in the worker that decoded them, and a manifest of what they are.

Invariant: the manifest appears last, and only when every part is in place: a folder with one is whole."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq

from sparkreplay.errors import OptionError
from sparkreplay.reader import ReadPlan, read_stretch
from sparkreplay.schema import arrow_schema

MANIFEST = "manifest.json"


def prepare_target(folder: str) -> None:
    """Makes the folder; raises OptionError when something is in it already."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise OptionError("--to", f"{folder} is not empty; name a new folder")


def export_stretch(read: ReadPlan, number: int, folder: str) -> int:
    """Writes part `number`; returns its rows. A part appears under its name only when it is complete."""
    target = Path(folder) / f"part-{number:05d}.parquet"
    unfinished = target.with_suffix(".unfinished")
    rows = 0
    schema = arrow_schema(read.columns)
    with pq.ParquetWriter(
        unfinished, schema, compression="snappy", use_dictionary=dictionary_columns(read)
    ) as writer:
        for batch in read_stretch(read, read.stretches[number]):
            writer.write_batch(batch)
            rows += batch.num_rows
    unfinished.replace(target)
    return rows


def dictionary_columns(read: ReadPlan) -> list[str]:
    """Columns with few distinct values; a dictionary of bodies or keys only costs."""
    repeated = {"topic", "tags", "born_host", "store_host", "transaction", "broker_name", "queue_id", "epoch"}
    return [name for name in read.columns if name in repeated]


def write_manifest(read: ReadPlan, rows: list[int], folder: str) -> Path:
    """What the export holds: store, range, epochs below the bound, rows of each part."""
    manifest = {
        "stores": [
            {
                "store": source.store.root,
                "broker_name": source.store.broker_name,
                "start_offset": source.start,
                "end_offset": source.end,
                "committed_bound": source.store.bound,
                "epochs": [list(entry) for entry in source.store.epochs_below(source.end)],
            }
            for source in read.sources
        ],
        "columns": list(read.columns),
        "parts": [{"file": f"part-{number:05d}.parquet", "rows": count} for number, count in enumerate(rows)],
        "rows": sum(rows),
    }
    path = Path(folder) / MANIFEST
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(manifest, indent=2) + "\n")
    unfinished.replace(path)
    return path
