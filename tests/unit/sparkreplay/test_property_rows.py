"""Any log with any splits gives the rows of a plain decoder."""

from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkreplay.errors import ReplayError
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import ReadPlan, plan_read, read_all
from sparkreplay.records.decode import decode_chunk
from sparkreplay.records.schema import BY_NAME, arrow_schema
from sparkreplay.records.walk import chunks_of
from tests.unit.sparkreplay.reference import plain, rows_below
from tests.unit.sparkreplay.stores import MIXES, SEGMENT_BYTES, folder, grown

COLUMNS = tuple(BY_NAME)
PACKED = [
    ({"topic": "orders", "queue_id": 0, "body": zlib.compress(b""), "properties": "", "sys_flag": 1}, 1)
]
LONG_TOPICS = [({"topic": "x" * 127, "queue_id": 0, "body": bytes(82), "properties": "", "sys_flag": 0}, 10)]
"""Records of 300 bytes: the third byte of one is 1, which as the second of a time is nine thousand years."""


def rows_of(path: str, **options: str) -> list[dict[str, Any]]:
    read = plan_read(read_options({"path": path, "columns": ",".join(COLUMNS), **options}))
    return plain(pa.Table.from_batches(list(read_all(read)), arrow_schema(COLUMNS)))


def rows_in_chunks(read: ReadPlan, chunk_bytes: int) -> list[dict[str, Any]]:
    batches = [
        decode_chunk(chunk, read.sources[0].selection, "path")
        for stretch in read.stretches
        for chunk in chunks_of(read.sources[0].store.files, stretch, chunk_bytes)
    ]
    return plain(pa.Table.from_batches(batches, arrow_schema(COLUMNS)))


@settings(max_examples=60)
@given(
    MIXES, SEGMENT_BYTES, st.floats(0, 1), st.sampled_from((4096, 6000, 16384, 1 << 30)), st.integers(8, 20)
)
def test_any_store_with_any_splits_and_bound_gives_the_rows_of_a_plain_decoder(
    mix: list[tuple[dict[str, Any], int]], segment_bytes: int, bound: float, split: int, chunk_bits: int
) -> None:
    with folder(segment_bytes) as store:
        grown(store, mix)
        confirm = int(bound * len(store.log)) if bound < 0.9 else len(store.log)
        path = store.write(confirm=confirm, epochs=((1, 0), (3, 9000)))
        expected = rows_below(bytes(store.log), confirm, epochs=((1, 0), (3, 9000)))
        read = plan_read(read_options({"path": path, "columns": ",".join(COLUMNS), "crc": "true"}))
        assert rows_in_chunks(read, 1 << chunk_bits) == expected
        try:
            assert rows_of(path, splitBytes=str(split), crc="true") == expected
        except ReplayError as error:
            assert b"forged" in store.log and "seam" in str(error)


@settings(max_examples=60)
@given(MIXES)
def test_open_transactions_are_rows_when_all_are_asked_for(mix: list[tuple[dict[str, Any], int]]) -> None:
    with folder(1 << 20) as store:
        grown(store, mix)
        expected = rows_below(bytes(store.log), len(store.log), committed_only=False)
        assert rows_of(store.write(), transactions="all") == expected


@settings(max_examples=150)
@given(
    MIXES,
    st.sampled_from(("cut", "flip", "zero", "copy")),
    st.integers(0, 1 << 21),
    st.integers(1, 200),
    st.integers(1, 255),
)
@example(PACKED, "zero", 222, 28, 1)  # its flags no longer say that it is compressed
@example(LONG_TOPICS, "copy", 5 * 300 + 39, 3, 1)  # born in a year that no datetime holds
def test_damaged_bytes_give_the_same_records_or_a_named_failure(
    mix: list[tuple[dict[str, Any], int]], how: str, somewhere: int, size: int, flipped: int
) -> None:
    with folder(1 << 17) as store:
        grown(store, mix)
        path = store.write()
        whole = rows_below(bytes(store.log), len(store.log))
        at = somewhere % len(store.log)
        for segment in sorted((store.root / "commitlog").iterdir()):
            start = int(segment.name)
            if not start <= at < start + store.segment_bytes:
                continue
            content = bytearray(segment.read_bytes())
            place = at - start
            if how == "cut":
                del content[place:]
            elif how == "flip":
                content[place] ^= flipped
            elif how == "zero":
                content[place : place + size] = bytes(min(size, len(content) - place))
            else:
                content[place : place + size] = content[: min(size, len(content) - place)]
            segment.write_bytes(content)
        try:
            rows = rows_of(path, crc="true")
        except ReplayError:
            return
        # Topics, properties and the numbers of a header carry no checksum: a change there shows in the row itself
        untouched = {row["physical_offset"] for row in rows}
        lost = [row for row in whole if row["physical_offset"] not in untouched]
        assert all(row["physical_offset"] <= at < row["physical_offset"] + row["store_size"] for row in lost)  # type: ignore[operator]
        same = {
            (row["physical_offset"], row["sys_flag"]): row["body"] for row in whole
        }  # the flags say how to decompress it
        assert all(
            row["body"] == same.get((row["physical_offset"], row["sys_flag"]), row["body"]) for row in rows
        )
