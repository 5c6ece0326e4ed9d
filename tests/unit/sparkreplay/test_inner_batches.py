"""Records of upstream's batch consume queues: each message of a batch is a row."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from sparkreplay.errors import LogCorrupted
from sparkreplay.read.options import read_options
from sparkreplay.read.pushed import comparisons
from sparkreplay.read.reader import plan_read, pruned, read_all, read_stretch
from sparkreplay.resend.rewrite import ROW_COLUMNS, rows_of
from tests.unit.sparkreplay.commandline import mqreplay
from tests.unit.sparkreplay.storefolder import StoreFolder
from tests.unit.sparkreplay.streamscene import Query

COUNT = 7


def member(number: int) -> bytes:
    """As a producer encodes a message of a batch."""
    body, properties = b"body %d" % number, b"UNIQ_KEY\x01K%d\x02TAGS\x01T%d\x02" % (number, number % 2)
    size = 22 + len(body) + len(properties)
    head = struct.pack(">iiiii", size, 0, 0, number, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


def add_batch(store: StoreFolder, first: int, count: int = COUNT, sys_flag: int = 0xC0) -> int:
    body = b"".join(map(member, range(first, first + count)))
    base = store.next_queue_offset.get(("orders", 0), 0)
    at = store.add(
        body=zlib.compress(body) if sys_flag & 1 else body,
        properties=f"INNER_NUM\x01{count}\x02INNER_BASE\x01{base}\x02UNIQ_KEY\x01batch\x02",
        sys_flag=sys_flag,
    )
    store.next_queue_offset["orders", 0] = base + count
    return at


@pytest.fixture
def store(tmp_path: Path) -> StoreFolder:
    """Three batches of seven, a plain message of another topic in front of each, one of the same topic at the end."""
    made = StoreFolder(tmp_path / "store", segment_bytes=2048)
    for first in (0, 7, 14):
        made.add(topic="payments", body=b"plain")
        add_batch(made, first)
    made.add(body=b"alone", properties="UNIQ_KEY\x01alone\x02")
    folder = made.root / "batchconsumequeue" / "orders" / "0"
    folder.mkdir(parents=True)
    return made


def read(path: str, **options: str) -> list[dict[str, object]]:
    batches = list(read_all(plan_read(read_options({"path": path, **options}))))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_each_message_of_an_inner_batch_is_a_row(store: StoreFolder) -> None:
    rows = read(store.write(), topic="orders", columns="full", crc="true")
    assert [row["queue_offset"] for row in rows] == list(range(22))
    assert [row["body"] for row in rows] == [*(b"body %d" % number for number in range(21)), b"alone"]
    assert [row["msg_id"] for row in rows] == [*(f"K{number}" for number in range(21)), "alone"]
    assert [row["flag"] for row in rows] == [*range(21), 7]
    starts = [at for topic, _, at in store.records if topic == "orders"]
    assert [row["physical_offset"] for row in rows] == [
        *(at for at in starts[:3] for _ in range(COUNT)),
        starts[3],
    ]
    assert rows[8]["properties"] == [("UNIQ_KEY", "K8"), ("TAGS", "T0")] and rows[8]["sys_flag"] == 0
    assert rows[8]["body_crc"] == zlib.crc32(b"body 8") & 0x7FFFFFFF
    sizes = sum(
        end - at for (topic, _, at), end in zip(store.records, store.ends, strict=True) if topic == "orders"
    )
    assert sum(row["store_size"] for row in rows) == sizes  # type: ignore[misc]


def test_a_row_has_an_id_of_its_own(store: StoreFolder) -> None:
    rows = read(store.write(), columns="row_id,topic,physical_offset")
    ids = [row["row_id"] for row in rows]
    assert len(set(ids)) == len(ids) == 25
    (_, _, payment), (_, _, batch), *_ = store.records
    assert ids[:3] == [f"broker-a@{payment}", f"broker-a@{batch}#0", f"broker-a@{batch}#1"]


@pytest.mark.parametrize("split", ["4096", "1m"])
def test_offsets_and_filters_are_those_of_the_messages(store: StoreFolder, split: str) -> None:
    path = store.write()
    rows = read(
        path,
        splitBytes=split,
        startingOffsets='{"orders": {"0": 10}}',
        endingOffsets='{"orders": {"0": 16}}',
        topic="orders",
    )
    assert [row["queue_offset"] for row in rows] == [*range(10, 16)]
    from pyspark.sql.datasource import EqualTo

    plan = plan_read(read_options({"path": path, "columns": "msg_id", "splitBytes": split}))
    plan = pruned(plan, comparisons([EqualTo(("flag",), 12)]))
    found = [
        row
        for stretch in plan.stretches
        for batch in read_stretch(plan, stretch)
        for row in batch.to_pylist()
    ]
    assert found == [{"msg_id": "K12"}]


@pytest.mark.parametrize("sys_flag", [0xC1, 0xC0 | 0x301])
def test_a_compressed_batch_is_opened(tmp_path: Path, sys_flag: int) -> None:
    store = StoreFolder(tmp_path, 1 << 16)
    add_batch(store, 0, 40, sys_flag)
    for decompress in ("true", "false"):
        rows = read(store.write(), columns="full", decompress=decompress)
        assert [row["body"] for row in rows] == [b"body %d" % number for number in range(40)]
        assert sum(row["store_size"] for row in rows) == store.ends[0]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("body", "sys_flag"),
    [(b"", 0xC0), (member(1)[:-1], 0xC0), (member(1) + b"x", 0xC0), (member(1), 0x80), (member(1), 0x40)],
)
def test_a_body_that_is_no_batch_stays_one_row(tmp_path: Path, body: bytes, sys_flag: int) -> None:
    store = StoreFolder(tmp_path)
    store.add(body=body, sys_flag=sys_flag)
    (row,) = read(store.write(), columns="full")
    assert (row["body"], row["sys_flag"]) == (body, sys_flag)


def test_the_crc_of_a_batch_is_that_of_its_record(store: StoreFolder) -> None:
    at = store.log.index(b"body 9")
    store.log[at] ^= 1
    path = store.write()
    assert len(read(path)) == 25
    with pytest.raises(LogCorrupted, match="the body's CRC differs"):
        read(path, crc="true")
    done = mqreplay("verify", path, "--workers", "1", "--json")
    assert [finding["what"] for finding in done.json["findings"]] == ["the body's CRC differs"]


def test_commands_count_messages(store: StoreFolder, tmp_path: Path) -> None:
    store.write_queues()
    path = store.write()
    scan = mqreplay("scan", path, "--json")
    (orders,) = [queue for queue in scan.json["queues"] if queue["topic"] == "orders"]
    assert (scan.code, orders["rows"], orders["first_offset"], orders["last_offset"]) == (0, 22, 0, 21)
    assert scan.json["bytes"] == sum(
        end - at for (_, _, at), end in zip(store.records, store.ends, strict=True)
    )
    verify = mqreplay("verify", path, "--json")
    assert (verify.code, verify.json["findings"]) == (0, [])
    assert mqreplay("export", path, "--to", str(tmp_path / "lake")).code == 0
    exported = ds.dataset(tmp_path / "lake", partitioning="hive", exclude_invalid_files=True).to_table()
    assert exported.num_rows == 25
    query = Query(path=path, maxOffsetsPerTrigger="2")
    query.run()
    assert len(query.rows) == 25


def test_a_batch_that_is_missing_is_a_gap(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path)
    add_batch(store, 0)
    store.next_queue_offset["orders", 0] = 9
    add_batch(store, 9)
    path = store.write()
    assert mqreplay("scan", path).code == 1
    (finding,) = mqreplay("verify", path, "--json").json["findings"]
    assert finding["what"] == "queue offset 9 is found where 7 is expected"


def test_each_message_of_a_batch_has_its_own_end_offset(store: StoreFolder) -> None:
    plan = plan_read(
        read_options({"path": store.write(), "topic": "orders", "columns": ",".join(ROW_COLUMNS)})
    )
    ends = [(row.physical_offset, row.end) for batch in read_all(plan) for row in rows_of(batch)]
    assert [end for _, end in ends] == sorted({end for _, end in ends}), "each message has an end of its own"
    assert [end for _, end in ends[COUNT - 1 :: COUNT][:3]] == [
        end for (topic, _, _), end in zip(store.records, store.ends, strict=True) if topic == "orders"
    ][:3]
    assert all(at < end for at, end in ends)
