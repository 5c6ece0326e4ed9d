"""A read gives exactly the committed rows with any splits, or fails by name."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from pathlib import Path

import pytest

from sparkreplay.errors import EpochChanged, LogCorrupted, OptionError, StoreUnreadable
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all
from tests.unit.sparkreplay.storefolder import StoreFolder, record
from tests.unit.sparkreplay.storerows import rows_of

VECTORS = Path(__file__).parents[2] / "vectors"


def mixed_store(root: Path, count: int = 300) -> StoreFolder:
    store = StoreFolder(root, segment_bytes=16384)
    for number in range(count):
        store.add(
            topic=("orders", "payments", "%RETRY%" + "g" * 140)[number % 3],
            queue_id=number % 4,
            body=bytes([number % 251]) * (number * 7 % 900),
            properties=f"TAGS\x01T{number % 5}\x02UNIQ_KEY\x01K{number}\x02",
            sys_flag=(0, 0x10, 0x20, 0x30)[number % 4],
        )
    return store


@pytest.mark.parametrize("split", ["4096", "5000", "9999", "16k", "1g"])
def test_every_split_size_gives_the_same_rows(tmp_path: Path, split: str) -> None:
    store = mixed_store(tmp_path)
    rows = rows_of(store.write(), splitBytes=split, crc="true")
    assert [row["msg_id"] for row in rows] == [f"K{number}" for number in range(300)]
    assert [len(row["body"]) for row in rows] == [number * 7 % 900 for number in range(300)]  # type: ignore[arg-type]


def test_a_row_carries_every_field_of_its_record(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path)
    store.add()
    at = store.add(
        body=b"body", properties="KEYS\x01a b\x02TAGS\x01T\x02UNIQ_KEY\x01own\x02UNIQ_KEY\x01batch\x02"
    )
    row = rows_of(store.write(epochs=((1, 0), (4, at))))[1]
    assert (row["topic"], row["queue_id"], row["queue_offset"], row["flag"]) == ("orders", 0, 1, 7)
    assert (row["tags"], row["keys"], row["msg_id"]) == ("T", "a b", "batch")
    assert dict(row["properties"]) == {"KEYS": "a b", "TAGS": "T", "UNIQ_KEY": "batch"}  # type: ignore[call-overload]
    assert (row["born_host"], row["store_host"]) == ("10.0.0.9:5000", "10.0.0.1:10911")
    assert (row["physical_offset"], row["epoch"], row["broker_name"]) == (at, 4, "broker-a")
    assert row["store_timestamp"].timestamp() == 1700000000.001  # type: ignore[attr-defined]


def test_a_bound_inside_a_record_leaves_that_record_out(tmp_path: Path) -> None:
    store = mixed_store(tmp_path)
    third = store.ends[2]
    for bound, rows in ((third, 3), (third - 1, 2), (third + 1, 3), (third + 9, 3), (0, 0)):
        assert len(rows_of(store.write(confirm=bound))) == rows


def test_a_bound_at_a_segment_boundary_reads_the_whole_segment(tmp_path: Path) -> None:
    store = mixed_store(tmp_path)
    rows = rows_of(store.write(confirm=16384))
    assert len(rows) == sum(end <= 16384 for end in store.ends)


def test_a_bound_above_the_records_is_a_failure_that_names_the_offset(tmp_path: Path) -> None:
    store = mixed_store(tmp_path, count=20)
    path = store.write(confirm=store.ends[-1] + 50)
    with pytest.raises(LogCorrupted, match=str(store.ends[-1])):
        rows_of(path)


def test_rows_of_system_topics_and_of_open_transactions_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path)
    store.add()
    store.add(topic="SCHEDULE_TOPIC_XXXX")
    store.add(sys_flag=4)
    path = store.write()
    assert len(rows_of(path)) == 1
    everything = rows_of(path, includeSystemTopics="true", transactions="all")
    assert [row["transaction"] for row in everything] == ["none", "none", "prepared"]


def test_only_committed_transactional_messages_are_rows(tmp_path: Path) -> None:
    """The log of a Java broker, see tests/vectors/broker/README.md."""
    store = StoreFolder(tmp_path, segment_bytes=1 << 20)
    store.log += (VECTORS / "broker/transactions-5.3.3.log").read_bytes()
    path = store.write()
    shown = [
        (row["topic"], row["body"], row["transaction"], row["prepared_transaction_offset"])
        for row in rows_of(path)
    ]
    assert shown == [("Orders", b"committed", "commit", 0), ("Orders", b"checked", "commit", 3146)]
    kinds = Counter(row["topic"] for row in rows_of(path, includeSystemTopics="true", transactions="all"))
    assert kinds == {
        "RMQ_SYS_TRANS_HALF_TOPIC": 10, "RMQ_SYS_TRANS_OP_HALF_TOPIC": 2, "Orders": 2, "TRANS_CHECK_MAX_TIME_TOPIC": 2
    }  # fmt: skip


def test_topics_and_queues_select_rows(tmp_path: Path) -> None:
    path = mixed_store(tmp_path).write()
    rows = rows_of(path, topic="payments", queues="1,3", columns="topic,queue_id")
    assert {(row["topic"], row["queue_id"]) for row in rows} == {("payments", 1), ("payments", 3)}


def test_compressed_bodies_are_opened_and_bombs_refused(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path, segment_bytes=1 << 20)
    store.add(body=zlib.compress(b"x" * 5000), sys_flag=0x1)
    store.add(body=b"plain")
    path = store.write()
    assert [row["body"] for row in rows_of(path)] == [b"x" * 5000, b"plain"]
    bomb = store.add(body=zlib.compress(bytes(65 << 20)), sys_flag=0x301)
    with pytest.raises(LogCorrupted, match=f"{bomb}: the compressed body"):
        rows_of(store.write())


@pytest.mark.parametrize("place", [0, 3, 4, 7, 28 + 7, 84, 88, 150])
def test_a_flipped_byte_below_the_bound_is_never_skipped(tmp_path: Path, place: int) -> None:
    store = mixed_store(tmp_path)
    path = store.write()
    whole = rows_of(path, crc="true")
    at = store.ends[40]
    segment = tmp_path / "commitlog" / f"{at // 16384 * 16384:020d}"
    data = bytearray(segment.read_bytes())
    data[at % 16384 + place] ^= 0x41
    segment.write_bytes(data)
    try:
        rows = rows_of(path, crc="true")
    except LogCorrupted:
        return
    assert len(rows) == len(whole), "a flipped byte in the topic or the properties keeps every row"


def test_a_forged_record_inside_a_body_is_no_row(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path, segment_bytes=1 << 16)
    for _ in range(30):
        start = len(store.log) + 88
        forged = record(start + 100, body=b"forged") + bytes(8)
        store.add(body=bytes(100) + forged + bytes(500))
    path = store.write()
    for split in ("4096", "6000", "1g"):
        try:
            rows = rows_of(path, splitBytes=split)
        except LogCorrupted:
            continue
        assert len(rows) == 30 and all(row["body"] != b"forged" for row in rows)


def test_a_truncation_during_the_read_is_noticed(tmp_path: Path) -> None:
    store = mixed_store(tmp_path)
    path = store.write(epochs=((1, 0), (2, 4000)))
    read = plan_read(read_options({"path": path}))
    store.write_epochs(((1, 0), (3, 3000)))
    with pytest.raises(EpochChanged):
        list(read_all(read))


def test_a_new_epoch_above_the_bound_changes_nothing(tmp_path: Path) -> None:
    store = mixed_store(tmp_path)
    read = plan_read(read_options({"path": store.write()}))
    store.write_epochs(((1, 0), (2, store.ends[-1])))
    assert sum(batch.num_rows for batch in read_all(read)) == 300


def test_a_store_that_cannot_be_read_exactly_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreadable, match="storePathRootDir"):
        rows_of(str(tmp_path))
    store = mixed_store(tmp_path)
    path = store.write()
    os.remove(tmp_path / "commitlog" / f"{16384:020d}")
    with pytest.raises(StoreUnreadable, match="a segment is missing"):
        rows_of(path)
    store.write()
    os.remove(tmp_path / "checkpoint")
    with pytest.raises(StoreUnreadable, match="checkpoint"):
        rows_of(path)


def test_options_that_cannot_be_used_say_why(tmp_path: Path) -> None:
    path = mixed_store(tmp_path).write()
    for options, why in (
        ({"colums": "full"}, "is unknown"),
        ({"columns": "bodi"}, "no column"),
        ({"splitBytes": "12q"}, "no size"),
        ({"startingOffsets": "17"}, "no record begins at 17"),
        ({"endingOffsets": "999999999"}, "above the committed bound"),
        ({"transactions": "some"}, "none of"),
    ):
        with pytest.raises((OptionError, LogCorrupted), match=why):
            rows_of(path, **options)
