"""The rows of a read, also through the consume queues, and of a snapshot with plan, walk and decode only."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sparkreplay.read.index import indexed_end, read_indexed
from sparkreplay.read.options import read_options
from sparkreplay.read.plan import plan
from sparkreplay.read.reader import plan_read, read_all
from sparkreplay.records.decode import Selection, decode_chunk
from sparkreplay.records.schema import PRESETS
from sparkreplay.records.walk import Stretch, chunks_of
from sparkreplay.store.snapshot import StoreSnapshot, check_epochs

Rows = list[dict[str, Any]]


def rows_of(path: str, **options: str) -> list[dict[str, object]]:
    """The rows of a read with these options; with every column unless they name some."""
    read = plan_read(read_options({"path": path, "columns": "full", **options}))
    return pa.Table.from_batches(list(read_all(read)), None if read.stretches else pa.schema([])).to_pylist()


def keys(path: str, **options: str) -> list[int]:
    return [int(str(row["msg_id"])[1:]) for row in rows_of(path, **options)]


def stretches_of(store: StoreSnapshot, split_bytes: int = 1 << 20) -> list[Stretch]:
    return plan(store, store.min_offset, max(store.bound, store.min_offset), split_bytes)


def rows_in(store: StoreSnapshot, stretches: list[Stretch]) -> list[dict[str, object]]:
    """The rows of some splits. The epochs are checked at the end, as a worker does."""
    selection = Selection(
        columns=PRESETS["full"], broker_name=store.broker_name, epochs=store.epochs, check_crc=True
    )
    batches = [
        decode_chunk(chunk, selection, stretch.segment.path)
        for stretch in stretches
        for chunk in chunks_of(store.files, stretch)
    ]
    check_epochs(store)
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def rows_of_store(store: StoreSnapshot, split_bytes: int = 1 << 20) -> list[dict[str, object]]:
    return rows_in(store, stretches_of(store, split_bytes))


def both_ways(path: str, **options: str) -> tuple[Rows, Rows]:
    """By the walk, and by the index."""
    read = plan_read(
        read_options({"path": path, "columns": "full", "failOnMissingTopic": "false", **options})
    )
    source = read.sources[0]
    end = indexed_end(source.store, source.end)
    batches = [
        batch
        for stretch in read.stretches
        for batch in read_indexed(source.store.files, stretch, source.selection, end)
    ]
    return rows(list(read_all(read))), rows(batches)


def rows(batches: list[pa.RecordBatch]) -> Rows:
    return [row for batch in batches for row in batch.to_pylist()]
