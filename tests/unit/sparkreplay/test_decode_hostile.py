"""Stores made to harm their reader are refused by name, in little memory; odd ones lose nothing."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import lz4.frame
import pyarrow as pa
import pytest
import zstandard

from sparkreplay.errors import LogCorrupted, NotText, ReplayError
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all
from tests.unit.sparkreplay.storefolder import StoreFolder

ROOT = Path(__file__).parents[3]
READ_IN_LITTLE_MEMORY = """
import resource, sys
from sparkreplay.errors import ReplayError
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all
import lz4.frame, zstandard
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (700 << 20), used + (700 << 20)))
for path in sys.argv[1:]:
    try:
        print(sum(batch.num_rows for batch in read_all(plan_read(read_options({"path": path, "columns": "full"})))))
    except ReplayError as error:
        print(type(error).__name__, error)
"""


def rows_of(path: str, **options: str) -> list[dict[str, Any]]:
    read = plan_read(read_options({"path": path, "columns": "full", **options}))
    return pa.Table.from_batches(list(read_all(read))).to_pylist()


def zstd_bomb(size: int, *, named: bool) -> bytes:
    made = zstandard.ZstdCompressor(write_content_size=named).compressobj(size=size if named else -1)
    block = bytes(1 << 20)
    return b"".join([*(made.compress(block) for _ in range(size >> 20)), made.flush()])


def zlib_bomb(size: int) -> bytes:
    """Repeats one compressed piece, because compressing a GiB takes seconds."""
    made = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    piece = made.compress(bytes(1 << 20)) + made.flush(zlib.Z_FULL_FLUSH)
    checksum = (size % 65521 << 16) + 1  # Adler-32 of so many zeros
    return b"\x78\xda" + piece * (size >> 20) + made.flush() + struct.pack(">I", checksum)


def test_bombs_are_refused_in_little_memory_by_path_and_offset(tmp_path: Path) -> None:
    lz4_bomb = bytes(lz4.frame.compress(bytes(200 << 20)))
    half = zlib_bomb(60 << 20)
    stores = {
        "zlib": [(zlib_bomb(1 << 30), 0x301)],
        "lz4": [(lz4_bomb, 0x101)],
        "zstd-named": [(zstd_bomb(1 << 30, named=True), 0x201)],
        "zstd": [(zstd_bomb(1 << 30, named=False), 0x201)],
        "many": [(half, 0x1)] * 40,
    }
    paths = []
    for name, bodies in stores.items():
        store = StoreFolder(tmp_path / name, segment_bytes=4 << 20)
        for body, sys_flag in bodies:
            store.add(body=body, sys_flag=sys_flag)
        paths.append(store.write())
    run = subprocess.run(
        [sys.executable, "-c", READ_IN_LITTLE_MEMORY, *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    lines = run.stdout.splitlines()
    assert len(lines) == len(paths), run.stderr
    for path, line in zip(paths, lines, strict=True):
        assert (
            line.startswith(f"LogCorrupted {path}/commitlog/") and "compressed body cannot be opened" in line
        )


TWO_FRAMES = {
    0x101: bytes(lz4.frame.compress(b"one") + lz4.frame.compress(b"two")),
    0x201: zstandard.compress(b"one") + zstandard.compress(b"two"),
}


@pytest.mark.parametrize("flags", list(TWO_FRAMES))
def test_a_body_of_two_compressed_frames_is_refused(tmp_path: Path, flags: int) -> None:
    store = StoreFolder(tmp_path)
    store.add()
    at = store.add(body=TWO_FRAMES[flags], sys_flag=flags)
    path = store.write()
    with pytest.raises(LogCorrupted, match=f"offset {at}: the compressed body cannot be opened: .*bytes"):
        rows_of(path)
    assert rows_of(path, decompress="false")[1]["body"] == TWO_FRAMES[flags]


@pytest.mark.parametrize("flags", [0x1, 0x101, 0x201, 0x301])
def test_an_empty_body_with_a_compression_flag_is_read_as_empty(tmp_path: Path, flags: int) -> None:
    store = StoreFolder(tmp_path)
    store.add(body=b"", sys_flag=flags)
    assert [row["body"] for row in rows_of(store.write(), crc="true")] == [b""]


@pytest.mark.parametrize("size", [-1, 0, 90, 2**31 - 1, -(2**31), (4 << 20) + (64 << 10) + 1])
def test_an_impossible_record_size_is_refused(tmp_path: Path, size: int) -> None:
    store = StoreFolder(tmp_path, 1 << 16)
    for _ in range(100):
        store.add()
    struct.pack_into(">i", store.log, store.ends[70], size)
    with pytest.raises(LogCorrupted, match=str(store.ends[70])):
        rows_of(store.write())


@pytest.mark.parametrize("place", ["body", "topic", "properties"])
@pytest.mark.parametrize("value", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00"])
def test_lengths_that_lead_out_of_the_record_are_refused(tmp_path: Path, place: str, value: bytes) -> None:
    store = StoreFolder(tmp_path, 1 << 16)
    for _ in range(3):
        store.add(topic="t" * 200, properties="A\x01b\x02")
    at = store.ends[1] + {"body": 84, "topic": 88 + 5, "properties": 88 + 5 + 2 + 200}[place]
    size = 4 if place == "body" else 2
    store.log[at : at + size] = value[:size]
    with pytest.raises(LogCorrupted, match=str(store.ends[1])):
        rows_of(store.write())


def test_a_header_too_short_for_its_ipv6_hosts_is_refused(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path)
    store.add()
    store.add(topic="t", body=b"")
    struct.pack_into(">i", store.log, store.ends[0] + 36, 0x30)
    with pytest.raises(LogCorrupted, match=str(store.ends[0])):
        rows_of(store.write())


def test_the_largest_and_the_smallest_messages_are_rows(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path, 16 << 20)
    for size in (0, 4 << 20, 1, (4 << 20) - 7, 0):
        store.add(topic="t", body=b"x" * size)
    assert [len(row["body"]) for row in rows_of(store.write())] == [0, 4 << 20, 1, (4 << 20) - 7, 0]


def test_a_segment_that_ends_in_a_blank_of_exactly_eight_bytes_is_whole(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path, 4096)
    first = store.add()
    left = 4096 - len(store.log) - 8
    store.add(body=bytes(left - (store.ends[0] - first - len(b"hello"))))
    assert 4096 - len(store.log) == 8
    store.add(body=b"next")
    assert [row["physical_offset"] for row in rows_of(store.write())] == [0, store.ends[0], 4096]


def with_bytes(store: StoreFolder, at: int, old: bytes, new: bytes) -> None:
    """The record at `at` was written by a client that does not write UTF-8."""
    assert len(old) == len(new)
    place = store.log.index(old, at)
    store.log[place : place + len(old)] = new


def test_properties_that_are_no_utf_8_are_read_as_javas_consumers_read_them(tmp_path: Path) -> None:
    """U+FFFD for each longest part of a character, next to any other bytes; properties_raw has the bytes."""
    store = StoreFolder(tmp_path)
    store.add(properties="TAGS\x01caf\xe9\x02")
    at = store.add(properties="TAGS\x01xx\x02KEYS\x01yyyyy\x02UNIQ_KEY\x01K1\x02zz\x01own\x02")
    store.add(properties="TAGS\x01t\x02")
    with_bytes(store, at, b"xx", b"\xc3\x28")
    with_bytes(store, at, b"yyyyy", b"\xb6\xa9\xe4\xb8z")  # GBK, and a character cut short
    with_bytes(store, at, b"zz", b"\xff\xe2")
    path = store.write()
    rows = rows_of(path, columns="tags,keys,msg_id,properties,properties_raw")
    assert [row["tags"] for row in rows] == ["caf\xe9", "\ufffd(", "t"]
    assert (rows[1]["keys"], rows[1]["msg_id"]) == ("\ufffd\ufffd\ufffdz", "K1")
    assert dict(rows[1]["properties"])["\ufffd\ufffd"] == "own"
    assert [row["properties_raw"] for row in rows] == [
        "TAGS\x01caf\xe9\x02".encode(),
        b"TAGS\x01\xc3\x28\x02KEYS\x01\xb6\xa9\xe4\xb8z\x02UNIQ_KEY\x01K1\x02\xff\xe2\x01own\x02",
        b"TAGS\x01t\x02",
    ]


def test_a_topic_that_is_no_utf_8_is_named_by_its_offset(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path)
    store.add()
    at = store.add()
    with_bytes(store, at, b"orders", b"\xffrders")
    with pytest.raises(NotText, match=f"at physical offset {at}: a record's topic"):
        rows_of(store.write(), columns="body")


def test_a_time_beyond_the_calendar_is_null(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path)
    for stored_ms in (2**63 - 1, -(2**63), 1_700_000_000_000):
        store.add(stored_ms=stored_ms)
    rows = rows_of(store.write(), columns="store_timestamp")
    assert [row["store_timestamp"] is None for row in rows] == [True, True, False]


def test_an_inner_batch_is_one_row_as_it_is_stored(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path)
    store.add(
        body=b"three messages, encoded", properties="INNER_NUM\x013\x02INNER_BASE\x010\x02", sys_flag=0xC0
    )
    (row,) = rows_of(store.write())
    assert row["body"] == b"three messages, encoded" and row["sys_flag"] == 0xC0
    assert dict(row["properties"]) == {"INNER_NUM": "3", "INNER_BASE": "0"}


def test_a_damaged_size_in_front_of_the_bound_is_no_end_of_the_log(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path, 1 << 16)
    for _ in range(50):
        store.add()
    for place in (store.ends[10], store.ends[48]):
        log = bytes(store.log)
        struct.pack_into(">i", store.log, place, 1 << 20)
        with pytest.raises(ReplayError, match=str(place)):
            rows_of(store.write())
        store.log[:] = log
