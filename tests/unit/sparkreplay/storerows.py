"""What a snapshot's rows are, read with nothing but plan, walk and decode."""

from __future__ import annotations

import pyarrow as pa

from sparkreplay.read.plan import plan
from sparkreplay.records.decode import Selection, decode_chunk
from sparkreplay.records.schema import PRESETS
from sparkreplay.records.walk import Stretch, chunks_of
from sparkreplay.store.snapshot import StoreSnapshot, check_epochs


def stretches_of(store: StoreSnapshot, split_bytes: int = 1 << 20) -> list[Stretch]:
    return plan(store, store.min_offset, max(store.bound, store.min_offset), split_bytes)


def rows_in(store: StoreSnapshot, stretches: list[Stretch]) -> list[dict[str, object]]:
    """The rows of some stretches; the epochs are checked at the end, as a worker does."""
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
