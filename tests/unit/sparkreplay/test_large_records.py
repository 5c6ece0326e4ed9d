"""Records larger than a chunk: brokers whose maxMessageSize was raised."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sparkreplay.errors import LogCorrupted
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all
from sparkreplay.records.walk import CHUNK_BYTES
from sparkreplay.store.framing import RECORD_SIZE_MAX
from tests.unit.sparkreplay.commandline import mqreplay
from tests.unit.sparkreplay.storefolder import StoreFolder

LARGE = (20 << 20, 5 << 20, 33 << 20)
SEGMENT_BYTES = 96 << 20


def body(size: int) -> bytes:
    return np.arange(size // 4, dtype=np.uint32).tobytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StoreFolder:
    made = StoreFolder(tmp_path_factory.mktemp("store"), SEGMENT_BYTES)
    for number in range(300):
        made.add(body=body(4 * number), topic="small")
        if number % 100 == 99:
            made.add(body=body(LARGE[number // 100]), topic="large")
    made.write()
    made.write_queues()
    return made


def rows(folder: StoreFolder, **options: str) -> pa.Table:
    read = plan_read(
        read_options({"path": str(folder.root), "columns": "topic,physical_offset,body", **options})
    )
    return pa.Table.from_batches(list(read_all(read)))


@pytest.mark.parametrize("split", ["65536", "4m", "1g"])
def test_large_records_are_rows_with_any_split_size(folder: StoreFolder, split: str) -> None:
    found = rows(folder, splitBytes=split)
    assert found["physical_offset"].to_pylist() == [at for _, _, at in folder.records]
    large = found.filter(pc.equal(found["topic"], "large"))["body"]
    assert [piece.as_py() == body(size) for piece, size in zip(large, LARGE, strict=True)] == [True] * 3


def test_large_records_are_found_through_the_consume_queues(folder: StoreFolder) -> None:
    found = rows(folder, topic="large", index="consumequeue")
    assert [len(piece.as_py()) for piece in found["body"]] == list(LARGE)


def test_the_bound_may_lie_inside_a_large_record(folder: StoreFolder) -> None:
    last = folder.records[-1][2]
    assert rows(folder, endingOffsets=str(last + CHUNK_BYTES + 100)).num_rows == len(folder.records) - 1


def test_large_records_verify(folder: StoreFolder) -> None:
    done = mqreplay("verify", str(folder.root), "--workers", "1", "--json")
    assert (done.code, done.json["findings_count"], done.json["stores"][0]["records"]) == (0, 0, 303)


def test_a_record_above_the_size_limit_is_refused_unread(tmp_path: Path) -> None:
    made = StoreFolder(tmp_path, SEGMENT_BYTES)
    at = made.add(body=body(8 << 20))
    made.add()
    made.log[at : at + 4] = struct.pack(">i", RECORD_SIZE_MAX + 1)
    made.write()
    with pytest.raises(LogCorrupted, match=f"record size {RECORD_SIZE_MAX + 1} is impossible"):
        rows(made)
