"""Rows of a Raft-mode broker's store: those of committed entries, by every engine, and of the log it had before."""

from __future__ import annotations

import random
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.raft.membership import MAGIC as MEMBERS
from dledger.storage.entry import ENTRY_HEADER, ENTRY_HEADER_BYTES, INDEX_UNIT
from sparkreplay.errors import EpochChanged, LogTruncated, OptionError
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all
from sparkreplay.records.schema import BY_NAME
from sparkreplay.records.walk import chunks_of
from sparkreplay.store import ledgerframing, ledgerindex
from sparkreplay.store.snapshot import open_store
from tests.unit.sparkreplay.commandline import mqreplay
from tests.unit.sparkreplay.javastores import java_store
from tests.unit.sparkreplay.ledgerfolder import LEAD, LedgerFolder, grown
from tests.unit.sparkreplay.ledgerfolder import MEMBERS as A_LIST
from tests.unit.sparkreplay.reference import SYSTEM_TOPICS, Row, plain, record_row
from tests.unit.sparkreplay.storefolder import StoreFolder
from tests.unit.sparkreplay.storerows import both_ways, keys, rows_of, stretches_of
from tests.unit.sparkreplay.stores import MIXES, add
from tests.unit.sparkreplay.streamscene import Query


def bodies(path: Path | str, **options: str) -> list[bytes]:
    return [bytes(row["body"]) for row in rows_of(str(path), **options)]  # type: ignore[call-overload]


def padded(name: str, count: int, size: int) -> list[bytes]:
    return [f"{name} {number} ".encode().ljust(size, b".") for number in range(count)]


def test_the_layout_is_that_of_the_ledgers_own_modules() -> None:
    assert ledgerframing.HEADER.size == ENTRY_HEADER_BYTES == LEAD
    assert ledgerframing.MEMBERS == MEMBERS
    values = (1, 60, 7, 3, 4096, 0, 5, 6, 12)
    assert ledgerframing.entry_head(ENTRY_HEADER.pack(*values), 4096) == ledgerframing.EntryHead(60, 7, 3)
    assert ledgerindex.UNIT.unpack(INDEX_UNIT.pack(1, 4096, 60, 7, 3)) == (1, 4096, 60, 7, 3)


def test_entries_written_by_dledger_are_recognised_by_their_headers() -> None:
    """Bytes of its own store, of a data file of 256 bytes: the first entry, and the first behind a blank."""
    first = bytes.fromhex(
        "0000000100000036" + "00" * 7 + "00" + "00" * 7 + "05" + "00" * 20 + "00000006" + "626f64792d30"
    )
    fifth = bytes.fromhex(
        "0000000100000036"
        + "00" * 7
        + "04"
        + "00" * 7
        + "05"
        + "0000000000000100"
        + "00" * 12
        + "00000006"
        + "626f64792d34"
    )
    assert ledgerframing.entry_head(first, 0) == ledgerframing.EntryHead(54, 0, 5)
    assert ledgerframing.entry_head(fifth, 256) == ledgerframing.EntryHead(54, 4, 5)
    assert ledgerframing.entry_head(fifth, 216) is None
    assert ledgerframing.LEDGER.ends_file(bytes.fromhex("ffffffff00000028"))


def test_a_java_brokers_store_is_read_up_to_its_committed_entry(tmp_path: Path) -> None:
    root = java_store("raft-mixed", tmp_path / "broker-a")
    store = open_store(str(root))
    assert (store.min_offset, store.bound, store.epochs) == (0, 150715, ((0, 49152),))
    assert b"late 0 ..." in (root / "dledger-n0/data/00000000000000147456").read_bytes()
    wanted = padded("old", 90, 200) + padded("first", 60, 300) + padded("big", 20, 3000)
    for options in ({}, {"splitBytes": "4096"}, {"index": "consumequeue", "topic": "Orders"}):
        assert bodies(root, crc="true", **options) == wanted
    rows = rows_of(str(root))
    assert [row["queue_offset"] for row in rows] == list(range(170))
    assert [row["epoch"] for row in rows] == [-1] * 90 + [0] * 80
    assert (rows[89]["physical_offset"], rows[90]["physical_offset"]) == (32768 + 12 * 411 - 411, 49152 + 48)


def test_the_commands_work_on_a_java_brokers_store(tmp_path: Path) -> None:
    root = str(java_store("raft-mixed", tmp_path / "broker-a"))
    report = mqreplay("scan", root, "--workers", "1", "--json").json
    assert report["records"]["message"] == 170 and report["stores"][0]["committed_bound"] == 150715
    verified = mqreplay("verify", root, "--workers", "1", "--json")
    assert (verified.code, verified.json["findings"]) == (0, [])
    export = ("export", root, "--to", str(tmp_path / "lake"), "--workers", "1", "--json")
    assert mqreplay(*export).json["rows"] == 170
    assert mqreplay(*export, "--append").json["rows"] == 170
    assert mqreplay("stats", root, "--workers", "1", "--json").code == 0


def ledger_rows(ledger: LedgerFolder, bound: int) -> list[Row]:
    """Every row of a folder whose log was never deleted, written from the layout."""
    log, rows, at = bytes(ledger.log), [], 0
    while at + 8 <= bound:
        if at < ledger.begin:
            size, magic = struct.unpack_from(">iI", log, at)
            if magic != 0xCBD43194 and at + size <= bound:
                rows.append(record_row(log, at, (), "broker-a")[0])
            at += size
            continue
        magic, size = struct.unpack_from(">Ii", log, at)
        if magic == 1:
            term, (body,) = struct.unpack_from(">q", log, at + 16)[0], struct.unpack_from(">i", log, at + 44)
            if at + size <= bound and body and log[at + 48] | log[at + 49] == 0:
                rows.append(record_row(log, at + 48, ((term, 0),), "broker-a")[0])
        at += size
    return [
        row
        for row in rows
        if row["topic"] not in SYSTEM_TOPICS and row["transaction"] not in ("prepared", "rollback")
    ]


@contextmanager
def scene(
    seed: int,
    old: list[tuple[dict[str, Any], int]],
    mix: list[tuple[dict[str, Any], int]],
    segment_bytes: int,
) -> Iterator[LedgerFolder]:
    """A ledger, behind a plain log where `old` is any, with elections and changes of the group between its messages."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as root:
        before = StoreFolder(Path(root), segment_bytes)
        for message, times in old:
            for _ in range(times):
                add(before, message)
        ledger = LedgerFolder.after(before) if old else LedgerFolder(Path(root), segment_bytes)
        ledger.checks = chance if seed % 2 else None
        ledger.term = chance.randrange(3)
        for message, times in mix:
            for _ in range(times):
                kind = chance.randrange(12)
                if kind == 0:
                    ledger.term += chance.randrange(1, 3)
                    ledger.add_entry(b"")
                elif kind == 1:
                    ledger.add_entry(A_LIST)
                elif kind == 2:
                    ledger.term += 1
                add(ledger, message)
        yield ledger


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.one_of(st.just([]), MIXES),
    MIXES,
    st.sampled_from((8192, 8200, 16384, 1 << 20)),
    st.floats(0, 1),
    st.sampled_from((None, "orders", "payments")),
    st.sampled_from(("4096", "5000", "9999", "1g")),
)
def test_every_engine_gives_the_rows_of_the_written_layout(
    seed: int, old: Any, mix: Any, segment_bytes: int, bound: float, topic: str | None, split: str
) -> None:
    with scene(seed, old, mix, segment_bytes) as ledger:
        path = ledger.write(confirm=int(bound * len(ledger.log)) if bound < 0.8 else None)
        ledger.write_queues()
        (ledger.root / "consumequeue").mkdir(exist_ok=True)
        store = open_store(path)
        wanted = [row for row in ledger_rows(ledger, store.bound) if topic in (None, row["topic"])]
        named = {} if topic is None else {"topic": topic, "failOnMissingTopic": "false"}
        for index in ("walk", "consumequeue"):
            read = plan_read(
                read_options(
                    {
                        "path": path,
                        "columns": ",".join(BY_NAME),
                        "splitBytes": split,
                        "index": index,
                        **named,
                    }
                )
            )
            found = [row for batch in read_all(read) for row in plain(pa.Table.from_batches([batch]))]
            assert found == wanted
        walked, indexed = both_ways(path, splitBytes=split, **named)
        assert walked == indexed
        query = Query(path=path, columns="physical_offset", maxBytesPerTrigger="4096", **named)
        query.run()
        assert [row["physical_offset"] for row in query.rows] == [row["physical_offset"] for row in wanted]
        offsets = [
            [
                int(at)
                for stretch in stretches_of(store)
                for chunk in chunks_of(store.files, stretch, size)
                for at in chunk.offsets
            ]
            for size in (64, 5000, 1 << 20)
        ]
        assert offsets[0] == offsets[1] == offsets[2]


def test_nothing_above_the_committed_index_is_read(tmp_path: Path) -> None:
    ledger = grown(tmp_path)
    for committed in (98, 40, 0):
        assert keys(ledger.write_committed(committed)) == list(range(committed + 1))
    assert keys(ledger.write_committed(-1)) == []
    with pytest.raises(
        OptionError, match="latest has no meaning for the store of a Raft-mode broker: above "
    ):
        keys(ledger.write_committed(40), endingOffsets="latest", allowUncommitted="true")


def test_a_read_begins_at_the_offset_of_a_row_or_behind_it_and_ends_below_another(tmp_path: Path) -> None:
    ledger = grown(tmp_path)
    path = ledger.write()
    rows = rows_of(path)
    row = rows[30]
    at, behind = (
        int(str(row["physical_offset"])),
        int(str(row["physical_offset"])) + int(str(row["store_size"])),
    )
    assert keys(path, startingOffsets=str(at)) == list(range(30, 100))
    assert keys(path, startingOffsets=str(behind)) == list(range(31, 100))
    assert keys(path, endingOffsets=str(behind)) == list(range(31))
    assert keys(path, endingOffsets=str(behind - 1)) == keys(path, endingOffsets=str(at)) == list(range(30))
    with pytest.raises(OptionError, match=f"no record begins at {at + 1}"):
        keys(path, startingOffsets=str(at + 1))


def test_an_address_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        OptionError, match="address: 127.0.0.1:1 is not asked: the store is a Raft-mode broker's"
    ):
        keys(grown(tmp_path).write(), address="127.0.0.1:1")


def test_each_term_of_a_ledger_is_an_epoch(tmp_path: Path) -> None:
    ledger = LedgerFolder(tmp_path, 16384)
    starts = []
    for term in (0, 2, 3, 9):
        ledger.term = term
        starts.append((term, ledger.add(body=bytes(200)) - LEAD))
        for _ in range(term * 20):
            ledger.add(body=bytes(200))
    store = open_store(ledger.write())
    assert store.epochs == tuple((term, start) for term, start in starts)
    found = [(int(str(row["epoch"])), row["physical_offset"]) for row in rows_of(str(tmp_path))]
    assert [epoch for epoch, _ in found] == sorted(epoch for epoch, _ in found)
    assert dict(reversed(found)) == {term: start + LEAD for term, start in starts}


def test_a_stream_continues_after_the_first_files_were_deleted(tmp_path: Path) -> None:
    ledger = grown(tmp_path)
    ledger.term = 1
    ledger.add(body=b"", properties="UNIQ_KEY\x01K100\x02")
    path = ledger.write_committed(50)
    query = Query(path=path, columns="msg_id")
    assert query.run() == [51]
    ledger.write()
    ledger.delete_first(1)
    assert open_store(path).epochs[0] == (0, 16384)
    assert query.run() == [50]
    left = keys(path)
    assert left == list(range(left[0], 101)) and left[0] > 0
    assert mqreplay("verify", path, "--workers", "1", "--json").json["findings"] == []


def test_replicas_whose_headers_carry_checks_of_their_own_are_alike(tmp_path: Path) -> None:
    one, other = grown(tmp_path / "1", checks=1), grown(tmp_path / "2", checks=2)
    paths = [one.write(), other.write()]
    assert one.log != other.log
    done = mqreplay("verify", *paths, "--workers", "1", "--json")
    assert (done.code, done.json["findings"]) == (0, [])
    assert done.json["compared"]
    query = Query(path=paths[0], columns="msg_id")
    query.run()
    assert query.start_offset()
    query.restart(path=paths[1], columns="msg_id")
    assert query.run() == []
    at = one.records[40][2] + 20  # in the record's queue offset
    data = tmp_path / f"2/dledger-n0/data/{at // 16384 * 16384:020d}"
    held = bytearray(data.read_bytes())
    held[at % 16384] ^= 1
    data.write_bytes(held)
    found = mqreplay("verify", *paths, "--workers", "1", "--json", "--compare-only").json["findings"]
    assert [finding["check"] for finding in found] == ["bytes"] and str(one.records[40][2]) in found[0][
        "what"
    ]


def test_an_epoch_file_says_that_a_ledger_in_the_folder_is_not_the_brokers(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path)
    store.add(body=b"plain")
    store.write()
    (tmp_path / "dledger-n0/data").mkdir(parents=True)
    assert bodies(tmp_path) == [b"plain"]


def test_a_stream_fails_when_another_leader_overwrote_entries_it_had_read(tmp_path: Path) -> None:
    ledger = grown(tmp_path)
    query = Query(path=ledger.write(), columns="msg_id")
    assert query.run() == [100]
    for again in (1, 2):
        ledger.log, ledger.units = ledger.log[: ledger.units[80][0]], ledger.units[:80]
        ledger.term = again
        for number in range(80, 120):
            ledger.add(body=f"{number}".encode().ljust(300, b"!"))
        ledger.write()
        with pytest.raises(LogTruncated, match=f"epoch {again} "):
            query.run()


def test_a_term_that_changes_below_the_bound_while_it_is_read_fails_the_read(tmp_path: Path) -> None:
    ledger = grown(tmp_path)
    read = plan_read(read_options({"path": ledger.write()}))
    ledger.log, ledger.units = ledger.log[: ledger.units[80][0]], ledger.units[:80]
    ledger.term = 3
    for number in range(80, 120):
        ledger.add(body=f"{number}".encode().ljust(300, b"!"))
    ledger.write()
    with pytest.raises(EpochChanged, match="changed while it was read, from .*0, 0.* to .*3"):
        list(read_all(read))


def test_replicas_with_entries_larger_than_the_compare_window_are_alike(tmp_path: Path) -> None:
    paths = []
    for checks in (1, 2):
        ledger = LedgerFolder(tmp_path / str(checks), 32 << 20, checks=checks)
        for number in range(60):
            ledger.add(body=bytes((5 << 20) + 13 if number in (20, 21) else 40_000))
        paths.append(ledger.write())
    assert mqreplay("verify", *paths, "--workers", "1", "--json").json["findings"] == []
