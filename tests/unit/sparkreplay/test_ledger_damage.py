"""A damaged or truncated store of a Raft-mode broker is refused with the file and any known offset."""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.raft.entries import Entry
from dledger.storage.entry import header_of
from sparkreplay.errors import LogCorrupted, ReplayError, StoreUnreadable
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all
from sparkreplay.store.ledgerchecks import check_of
from sparkreplay.store.ledgerframing import entry_head
from tests.unit.sparkreplay.commandline import mqreplay
from tests.unit.sparkreplay.ledgerfolder import LEAD, LedgerFolder, grown
from tests.unit.sparkreplay.storefolder import StoreFolder
from tests.unit.sparkreplay.storerows import keys, rows_of

FILE_BYTES = 16384
DATA, INDEX = "dledger-n0/data/00000000000000000000", "dledger-n0/index/00000000000000000000"


def changed(ledger: LedgerFolder, entry: int, field: int, kind: str, value: int) -> None:
    """Writes `value` at byte `field` of the entry, in its data file."""
    at = ledger.units[entry][0] + field
    path = ledger.root / f"dledger-n0/data/{at // FILE_BYTES * FILE_BYTES:020d}"
    held = bytearray(path.read_bytes())
    struct.pack_into(">" + kind, held, at % FILE_BYTES, value)
    path.write_bytes(held)


@pytest.mark.parametrize(
    ("field", "kind", "value", "why"),
    [
        (0, "I", 2, "no entry starts here, below the bound"),
        (0, "i", -1, "the blank that ends the file does not end it"),
        (4, "I", 47, "record size -1 is impossible"),
        (4, "I", 0xFFFFFFF0, "is impossible"),
        (4, "I", 1000, "the entry's body is not of the entry's size"),
        (8, "q", 20, "the entry's index is not the next"),
        (16, "q", -1, "the entry's term is below the one before"),
        (24, "q", 1, "the entry names another place"),
        (44, "i", 0, "the entry's body is not of the entry's size"),
        (44, "i", -5, "the entry's body is not of the entry's size"),
        (48, "i", 90, "the record does not fill its entry"),
        (52, "I", 0xCBD43194, "the entry holds no record"),
        (76, "q", 5, "the record names another physical offset"),
    ],
)
def test_an_entry_that_contradicts_itself_fails_the_read_by_file_and_offset(
    tmp_path: Path, field: int, kind: str, value: int, why: str
) -> None:
    ledger = grown(tmp_path)
    path = ledger.write()
    changed(ledger, 10, field, kind, value)
    with pytest.raises(LogCorrupted, match=why) as failed:
        keys(path)
    assert DATA in str(failed.value) and failed.value.offset - ledger.units[10][0] in (0, LEAD)
    done = mqreplay("verify", path, "--workers", "1", "--json")
    assert done.code == 1 and done.json["findings_count"] >= 1
    assert done.json["stores"][0]["records"] >= 97  # it continues behind the damage


def rewritten(path: Path, change: Callable[[bytearray], None]) -> None:
    held = bytearray(path.read_bytes())
    change(held)
    path.write_bytes(held)


def put(at: int, kind: str, value: int) -> Callable[[bytearray], None]:
    return lambda held: struct.pack_into(">" + kind, held, at, value)


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("dledger-n0/checkpoint", "endIndex=9\n", "committedIndex='' is no index of an entry"),
        ("dledger-n0/checkpoint", "committedIndex=-2\n", "committedIndex='-2' is no index"),
        ("dledger-n0/checkpoint", "committedIndex=9999999999999999999999\n", "is no index of an entry"),
        ("dledger-n0/checkpoint", "\xff\xfe", "is no index of an entry"),
        ("dledger-n0/checkpoint", "committedIndex=5000\n", "names no place for entry 5000, at byte 160000"),
        ("dledger-n0/checkpoint", "committedIndex=5\ncutFrom=5\n", "committed entries are cut, from 5 on"),
        ("dledger-n1/checkpoint", "committedIndex=5\n", "has several ledgers, dledger-n0 and dledger-n1"),
        ("dledger-n0/data/other", "x", "is not named as a segment is"),
    ],
)
def test_a_ledgers_small_files_are_read_completely_or_refused(
    tmp_path: Path, file: str, text: str, why: str
) -> None:
    path = grown(tmp_path).write()
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text, encoding="latin-1")
    with pytest.raises(StoreUnreadable, match=why):
        keys(path)


def test_an_index_that_disagrees_with_the_data_bounds_nothing(tmp_path: Path) -> None:
    path = grown(tmp_path).write()
    last = tmp_path / "dledger-n0/index/00000000000000002048"
    for at, kind, value in ((4, "q", 7), (12, "I", 100), (24, "q", 9)):
        whole = last.read_bytes()
        rewritten(last, put(35 * 32 + at, kind, value))
        with pytest.raises(
            StoreUnreadable, match=r"entry 99, which the checkpoint calls committed|entry \d+ of a term below"
        ):
            keys(path)
        last.write_bytes(whole)
    rewritten(last, put(35 * 32 + 16, "q", 98))
    with pytest.raises(StoreUnreadable, match="names no place for entry 99, at byte 3168"):
        keys(path)
    last.unlink()
    with pytest.raises(StoreUnreadable, match="names no place for entry 99"):
        keys(path)


@pytest.mark.parametrize("entry", [0, 30, 50])
@pytest.mark.parametrize(
    ("at", "kind", "value"), [(0, "I", 0), (4, "q", 7), (12, "I", 49), (16, "q", 31), (24, "q", 1)]
)
def test_verify_reports_the_first_entry_with_a_wrong_index(
    tmp_path: Path, entry: int, at: int, kind: str, value: int
) -> None:
    ledger = grown(tmp_path)
    path = ledger.write()
    rewritten(tmp_path / INDEX, put(entry * 32 + at, kind, value))
    if at == 24:  # a term that would begin there, and end
        for index in range(entry, 64):
            rewritten(tmp_path / INDEX, put(index * 32 + at, kind, value))
        for index in range(64, 100):
            rewritten(
                tmp_path / "dledger-n0/index/00000000000000002048", put((index - 64) * 32 + at, kind, value)
            )
        changed(ledger, 99, 16, "q", value)
    findings = mqreplay("verify", path, "--workers", "1", "--json").json["findings"]
    first = [finding for finding in findings if finding["check"] in ("ledger index", "store")][0]
    assert "dledger-n0/index" in first["path"] + first["what"]
    assert first["offset"] in (ledger.units[entry][0], None) and str(entry) in first["what"]


def flipped(ledger: LedgerFolder, at: int) -> None:
    """The lowest bit of the byte at physical offset `at`."""
    path = ledger.root / f"dledger-n0/data/{at // FILE_BYTES * FILE_BYTES:020d}"
    held = bytearray(path.read_bytes())
    held[at % FILE_BYTES] ^= 1
    path.write_bytes(held)


def broken(path: str) -> list[int | None]:
    """Offsets of entries whose check fails; no other check finds anything."""
    findings = mqreplay("verify", path, "--workers", "1", "--json").json["findings"]
    assert {finding["check"] for finding in findings} <= {"ledger check"}
    return [finding["offset"] for finding in findings]


@pytest.mark.parametrize(
    ("byte", "what"),
    [
        (35, "the channel"),
        (43, "how many entries share the sync"),
        (LEAD + 16, "the record's flag"),
        (LEAD + 63, "the record's store time"),
        (LEAD + 88 + 300 + 15, "a property"),
    ],
)
@pytest.mark.parametrize("entry", [0, 1, 50, 99])
def test_verify_reports_a_flipped_bit_that_only_the_entry_check_finds(
    tmp_path: Path, byte: int, what: str, entry: int
) -> None:
    ledger = grown(tmp_path, checks=1)
    path = ledger.write()
    assert broken(path) == []
    flipped(ledger, ledger.units[entry][0] + byte)
    assert len(rows_of(path)) == 100, "a read does not look at it"
    assert broken(path) == [ledger.units[entry][0]], what


@given(st.binary(max_size=100), st.integers(0, (1 << 32) - 1))
def test_the_entry_check_equals_that_of_the_member(body: bytes, before: int) -> None:
    header, check = header_of(Entry(7, 3, body), 4096, 2, before)
    data = header + body
    head = entry_head(data, 4096)
    assert head is not None and head.check == check == check_of(memoryview(data), before)


def test_a_flipped_bit_in_a_check_is_reported_for_its_entry_and_the_next(tmp_path: Path) -> None:
    ledger = grown(tmp_path, checks=1)
    path = ledger.write()
    first_of_file = next(number for number, unit in enumerate(ledger.units) if unit[0] == FILE_BYTES)
    flipped(ledger, ledger.units[first_of_file - 1][0] + 39)
    assert broken(path) == [ledger.units[number][0] for number in (first_of_file - 1, first_of_file)]


def test_entries_are_checked_behind_deleted_files_and_behind_damage(tmp_path: Path) -> None:
    ledger = grown(tmp_path, checks=1)
    path = ledger.write()
    begin = ledger.delete_first(1)
    first = next(number for number, unit in enumerate(ledger.units) if unit[0] == begin)
    flipped(ledger, ledger.units[first][0] + 35)  # the check of the entry before is deleted
    flipped(ledger, ledger.units[first + 1][0] + 35)
    assert broken(path) == [ledger.units[first + 1][0]]
    changed(ledger, first + 3, 24, "q", 1)
    flipped(ledger, ledger.units[first + 4][0] + 35)  # here too
    flipped(ledger, ledger.units[first + 5][0] + 35)
    findings = mqreplay("verify", path, "--workers", "1", "--json").json["findings"]
    offsets = [finding["offset"] for finding in findings if finding["check"] == "ledger check"]
    assert offsets == [ledger.units[number][0] for number in (first + 1, first + 5)]


def test_checks_above_the_bound_and_zero_checks_of_java_are_not_compared(tmp_path: Path) -> None:
    ledger = grown(tmp_path, checks=1)
    path = ledger.write_committed(60)
    flipped(ledger, ledger.units[61][0] + LEAD + 63)
    assert broken(path) == []
    of_java = grown(tmp_path / "java")
    path = of_java.write()
    flipped(of_java, of_java.units[30][0] + LEAD + 63)
    assert broken(path) == []


def test_decreasing_terms_are_refused(tmp_path: Path) -> None:
    path = grown(tmp_path).write()
    for index in range(50):
        rewritten(tmp_path / INDEX, put(index * 32 + 24, "q", 4))
    with pytest.raises(StoreUnreadable, match="has entry 50 of a term below 4"):
        keys(path)


def test_missing_parts_are_named(tmp_path: Path) -> None:
    ledger = grown(tmp_path / "whole")
    ledger.write()

    def without(name: str) -> str:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", copy)
        found = copy / name
        shutil.rmtree(found) if found.is_dir() else found.unlink()
        return str(copy)

    with pytest.raises(StoreUnreadable, match="checkpoint: is not there, so nothing says what is committed"):
        keys(without("dledger-n0/checkpoint"))
    with pytest.raises(
        StoreUnreadable, match="has no files, but entry 99 is committed.*storePathDLedgerCommitLog"
    ):
        keys(without("dledger-n0/data"))
    with pytest.raises(StoreUnreadable, match="does not follow .*: a segment is missing"):
        keys(without("dledger-n0/data/00000000000000016384"))
    with pytest.raises(StoreUnreadable, match="is at physical offset .* but the data holds no entry there"):
        keys(without("dledger-n0/data/00000000000000032768"))
    assert keys(without("checkpoint")) == list(range(100))
    copy = Path(without("brokerIdentity"))
    (copy / "dledger-n0/checkpoint").rename(copy / "dledger-n0/checkpoint.bak")  # as Java does for a moment
    assert keys(str(copy)) == list(range(100))


def test_a_gap_between_the_old_log_and_the_ledger_is_refused(tmp_path: Path) -> None:
    old = StoreFolder(tmp_path, FILE_BYTES)
    for number in range(90):
        old.add(body=bytes(300), properties=f"UNIQ_KEY\x01K{number}\x02")
    ledger = LedgerFolder.after(old)
    ledger.add(body=b"new", properties="UNIQ_KEY\x01K90\x02")
    path = ledger.write()
    assert keys(path) == list(range(91))
    left = ledger.delete_first(1)
    assert keys(path) == list(range(90 - sum(at >= left for _, _, at in old.records), 91))
    (tmp_path / "commitlog" / f"{ledger.begin - FILE_BYTES:020d}").unlink()
    if ledger.begin > 2 * FILE_BYTES:
        with pytest.raises(StoreUnreadable, match="does not follow commitlog/"):
            keys(path)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_file_that_was_overwritten_anywhere_gives_rows_or_a_named_failure(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as root:
        ledger = grown(Path(root), 60, segment_bytes=8192)
        path = ledger.write()
        files = sorted(file for file in Path(root).rglob("*") if file.is_file() and "dledger" in str(file))
        file = data.draw(st.sampled_from(files))
        held = bytearray(file.read_bytes())
        at = data.draw(st.integers(0, len(held) - 1))
        size = data.draw(st.integers(1, 16))
        held[at : at + size] = data.draw(st.binary(min_size=size, max_size=size))[: len(held) - at]
        file.write_bytes(held)
        try:
            read = plan_read(read_options({"path": path, "columns": "full", "crc": "true"}))
            rows = sum(
                batch.num_rows for batch in read_all(read)
            )  # Python's dates end before a damaged time does
        except ReplayError as failed:
            assert str(failed)
        else:
            assert rows <= 60
        mqreplay("verify", path, "--workers", "1", "--json")
