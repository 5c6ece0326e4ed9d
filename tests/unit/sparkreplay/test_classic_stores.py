"""Stores of classic masters and slaves: commit logs without epochs, in which nothing says what is committed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sparkreplay.errors import EpochChanged, ForeignLog, OptionError, StoreUnreadable, UncommittedRefused
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import plan_read, read_all
from sparkreplay.records.hosts import host_text
from sparkreplay.store.snapshot import check_epochs, open_store
from tests.unit.sparkreplay.commandline import mqreplay
from tests.unit.sparkreplay.storefolder import StoreFolder
from tests.unit.sparkreplay.streamscene import Query

ALLOWED = {"allowUncommitted": "true"}


class ClassicFolder(StoreFolder):
    """As upstream's classic master leaves it: no epochs, no identity, a confirm offset that was never set."""

    def write(self, **fields: object) -> str:
        path = super().write(confirm=0)
        for name in ("epochFileCheckpoint", "brokerIdentity"):
            (self.root / name).unlink()
        return path


def classic(root: Path, count: int = 60) -> ClassicFolder:
    made = ClassicFolder(root, segment_bytes=4096)
    for number in range(count):
        made.add(topic=("orders", "payments")[number % 2], body=b"%d" % number)
    return made


def rows_of(path: str, **options: str) -> list[dict[str, object]]:
    return pa.Table.from_batches(
        list(read_all(plan_read(read_options({"path": path, **options}))))
    ).to_pylist()


def test_a_classic_store_is_read_to_its_end_with_the_option(tmp_path: Path) -> None:
    made = classic(tmp_path / "broker-x")
    path = made.write()
    with pytest.raises(UncommittedRefused, match="classic master's or slave's .* SYNC_MASTER"):
        rows_of(path)
    rows = rows_of(path, columns="full", **ALLOWED)
    assert [row["body"] for row in rows] == [b"%d" % number for number in range(60)]
    assert {row["epoch"] for row in rows} == {-1} and {row["broker_name"] for row in rows} == {"broker-x"}
    assert len(rows_of(path, endingOffsets="latest", **ALLOWED)) == 60
    assert len(rows_of(path, endingOffsets=str(made.ends[9]), **ALLOWED)) == 10
    (tmp_path / "broker-x" / "checkpoint").unlink()
    assert len(rows_of(path, **ALLOWED)) == 60, "nothing in it counts"


def test_a_classic_store_ends_at_its_last_complete_record(tmp_path: Path) -> None:
    made = classic(tmp_path)
    made.log[made.ends[-2] + 88] ^= 1  # the last one is not written whole
    assert len(rows_of(made.write(), **ALLOWED)) == 59


def test_options_that_need_epochs_are_refused_by_name(tmp_path: Path) -> None:
    path = classic(tmp_path).write()
    with pytest.raises(OptionError, match="address: 127.0.0.1:1 is not asked: the store has no epochs"):
        rows_of(path, address="127.0.0.1:1", **ALLOWED)
    (tmp_path / "empty" / "commitlog").mkdir(parents=True)
    with pytest.raises(StoreUnreadable, match="has no epochFileCheckpoint; name a broker's storePathRootDir"):
        rows_of(str(tmp_path / "empty"), **ALLOWED)


def test_commands_take_a_classic_store(tmp_path: Path) -> None:
    made = classic(tmp_path / "store")
    path = made.write()
    refused = mqreplay("scan", path, "--json")
    assert (refused.code, refused.json["kind"]) == (1, "UncommittedRefused")
    scan = mqreplay("scan", path, "-o", "allowUncommitted=true")
    assert scan.code == 0 and "epochs     none" in scan.out and "60 records" in scan.out
    assert "nothing says what is committed" in scan.out
    verify = mqreplay("verify", path, "--json")
    assert (verify.code, verify.json["findings"], verify.json["stores"][0]["records"]) == (0, [], 60)
    command = [
        "export",
        path,
        "--to",
        str(tmp_path / "lake"),
        "-o",
        "allowUncommitted=true",
        "--append",
        "--json",
    ]
    assert mqreplay(*command).code == 0
    made.add(body=b"later")
    made.write()
    assert mqreplay(*command).json["rows"] == 61


def test_a_stream_follows_a_classic_store_and_refuses_another_one(tmp_path: Path) -> None:
    made = classic(tmp_path / "store")
    query = Query(path=made.write(), **ALLOWED)
    assert query.run() == [60]
    made.add(body=b"later")
    query.restart(path=made.write(), **ALLOWED)
    assert query.run() == [1] and query.rows[-1]["body"] == b"later"
    other = ClassicFolder(tmp_path / "other" / "store", segment_bytes=4096)
    for number in range(90):
        other.add(body=b"other %d" % number)
    query.restart(path=other.write(), **ALLOWED)
    with pytest.raises(ForeignLog):
        query.run()


def test_a_store_that_gets_epochs_meanwhile_is_another_log(tmp_path: Path) -> None:
    made = classic(tmp_path)
    store = open_store(made.write(), allow_uncommitted=True)
    check_epochs(store)
    made.write_epochs(((3, 0),))
    with pytest.raises(EpochChanged):
        check_epochs(store)


@pytest.mark.parametrize(
    ("packed", "text"),
    [
        (bytes([10, 0, 0, 1]), "10.0.0.1:10911"),
        (bytes(15) + b"\x01", "[0:0:0:0:0:0:0:1]:10911"),
        (bytes.fromhex("20010db8000000000000000000ab0c0d"), "[2001:db8:0:0:0:0:ab:c0d]:10911"),
        (bytes(10) + b"\xff\xff\x0a\x00\x00\x01", "10.0.0.1:10911"),
    ],
)
def test_hosts_are_written_as_java_writes_them(packed: bytes, text: str) -> None:
    assert host_text(packed + (10911).to_bytes(4, "big")) == text
