"""Stores that Java brokers wrote: every row equals the output of Java's own decoder, field by field."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import zlib
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkreplay.errors import LogCorrupted
from sparkreplay.read.index import indexed_end, read_indexed
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all
from tests.unit.sparkreplay.storefolder import StoreFolder

GOLDEN = Path(__file__).parents[2] / "vectors" / "store"
SEGMENT_BYTES = {"clean-shutdown": 262144, "after-kill-9": 262144, "non-controller-record-crc": 65536}
COLUMNS = (
    "topic,queue_id,queue_offset,body,properties,born_timestamp,store_timestamp,born_host,store_host,flag,sys_flag,"
    "reconsume_times,prepared_transaction_offset,physical_offset,store_size,body_crc,tags,keys,msg_id"
)


def lay_out(name: str, root: Path) -> tuple[str, list[dict[str, Any]]]:
    """A copy with whole segments, all committed; and Java's lines of its records."""
    size = SEGMENT_BYTES[name]
    (root / "commitlog").mkdir(parents=True)
    for path in (GOLDEN / name / "commitlog").iterdir():
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        (root / "commitlog" / path.stem).write_bytes(data.ljust(size, b"\0"))
    lines = [json.loads(line) for line in (GOLDEN / name / "messages.jsonl").read_text().splitlines()]
    records = [line for line in lines if line["record"] != "BLANK"]
    end = records[-1]["physicalOffset"] + records[-1]["size"]
    (root / "checkpoint").write_bytes(struct.pack(">5q", 0, 0, 0, 0, end).ljust(4096, b"\0"))
    StoreFolder(root).write_epochs(((1, 0),))
    if (GOLDEN / name / "consumequeue").exists():
        shutil.copytree(GOLDEN / name / "consumequeue", root / "consumequeue")
    return str(root), records


def rows_of(path: str, **options: str) -> list[dict[str, Any]]:
    asked = {
        "path": path,
        "columns": COLUMNS,
        "transactions": "all",
        "includeSystemTopics": "true",
        "crc": "true",
    }
    read = plan_read(read_options({**asked, **options}))
    return pa.Table.from_batches(list(read_all(read))).to_pylist()


def moment(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize("decompress", ["true", "false"])
@pytest.mark.parametrize("name", sorted(SEGMENT_BYTES))
def test_every_row_of_a_java_store_equals_javas_decoding(tmp_path: Path, name: str, decompress: str) -> None:
    path, lines = lay_out(name, tmp_path / "store")
    rows = rows_of(path, decompress=decompress)
    assert len(rows) == len(lines) > 5
    for row, line in zip(rows, lines, strict=True):
        properties = line["properties"]
        assert (row["topic"], row["queue_id"], row["queue_offset"]) == (
            line["topic"], line["queueId"], line["queueOffset"],
        )  # fmt: skip
        assert (row["physical_offset"], row["store_size"], row["body_crc"]) == (
            line["physicalOffset"], line["size"], line["bodyCRC"],
        )  # fmt: skip
        assert (row["flag"], row["sys_flag"], row["reconsume_times"]) == (
            line["flag"], line["sysFlag"], line["reconsumeTimes"],
        )  # fmt: skip
        assert row["prepared_transaction_offset"] == line["preparedTransactionOffset"]
        assert row["born_timestamp"] == moment(line["bornTimestamp"])
        assert row["store_timestamp"] == moment(line["storeTimestamp"])
        assert java_host(row["store_host"]) == line["storeHost"]
        assert java_host(row["born_host"]) == line["bornHost"]
        assert dict(row["properties"]) == properties
        assert (row["tags"], row["keys"], row["msg_id"]) == tuple(
            properties.get(name) for name in ("TAGS", "KEYS", "UNIQ_KEY")
        )
        if decompress == "true" and "decompressedLength" in line:
            assert len(row["body"]) == line["decompressedLength"]
            assert zlib.crc32(row["body"]) == line["decompressedCrc32"]
        else:
            assert len(row["body"]) == line["bodyLength"]
            assert row["body"].hex() == line.get("bodyHex", row["body"].hex())


def java_host(text: str) -> str:
    """As InetSocketAddress prints it: IPv6 in full groups."""
    if not text.startswith("["):
        return "/" + text
    host, port = text.removeprefix("[").split("]:")
    groups = ":".join(f"{int(group, 16):x}" for group in ip_address(host).exploded.split(":"))
    return f"/[{groups}]:{port}"


def test_the_golden_stores_contain_all_hard_cases_of_decoding(tmp_path: Path) -> None:
    _, lines = lay_out("clean-shutdown", tmp_path / "store")
    assert {line["sysFlag"] & 0x701 for line in lines} >= {0, 0x101, 0x201, 0x301}
    assert any(line["sysFlag"] & 0x10 for line in lines) and any(line["record"] == "V2" for line in lines)
    assert {line["sysFlag"] & 0xC for line in lines} >= {0, 8}


def test_a_java_store_is_read_through_its_own_queues(tmp_path: Path) -> None:
    path, _ = lay_out("clean-shutdown", tmp_path / "store")
    for folder in (tmp_path / "store" / "consumequeue").glob("*/*/*"):
        folder.write_bytes(folder.read_bytes().ljust(6_000_000, b"\0"))
    read = plan_read(read_options({"path": path, "columns": "full", "topic": "BinTopic,VecTopic"}))
    source = read.sources[0]
    end = indexed_end(source.store, source.end)
    assert end == source.end
    indexed = [
        row
        for stretch in read.stretches
        for batch in read_indexed(source.store.files, stretch, source.selection, end)
        for row in batch.to_pylist()
    ]
    assert indexed == [row for batch in read_all(read) for row in batch.to_pylist()] and len(indexed) > 40


def test_a_read_with_the_option_checks_the_crcs_of_complete_records(tmp_path: Path) -> None:
    path, lines = lay_out("non-controller-record-crc", tmp_path)
    assert len(rows_of(path, crc="record")) == len(lines)
    segment = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(segment.read_bytes())
    content[lines[2]["pos"] + 43] ^= 1  # of the queue offset, where no other check looks
    segment.write_bytes(content)
    assert len(rows_of(path, crc="true")) == len(lines)
    with pytest.raises(LogCorrupted, match="the record's own CRC differs") as damage:
        rows_of(path, crc="record")
    assert str(lines[2]["physicalOffset"]) in str(damage.value)
