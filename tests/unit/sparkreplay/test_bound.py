"""The bound of a read: never above the confirm offset of the SyncStateSet, unless an option allows it."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from messagestore.checkpoint import Checkpoint
from messagestore.contractmark import FILE as CONTRACT_A
from sparkreplay.errors import (
    EpochChanged,
    LiveBrokerFailed,
    OptionError,
    StoreUnreadable,
    UncommittedRefused,
)
from sparkreplay.records.walk import chunks_of
from sparkreplay.store.snapshot import check_epochs, open_store, up_to, up_to_latest
from tests.unit.sparkreplay.scriptedbroker import ScriptedBroker, serving
from tests.unit.sparkreplay.storefolder import StoreFolder
from tests.unit.sparkreplay.storerows import rows_of_store, stretches_of

EPOCHS = ((1, 0), (3, 16384))


@pytest.fixture
def folder(tmp_path: Path) -> StoreFolder:
    """Three segments and two epochs, committed up to the 50th of 60 records; the id of the replica is 1."""
    store = StoreFolder(tmp_path, segment_bytes=16384)
    for number in range(60):
        store.add(body=bytes([number]) * 700)
    store.write(confirm=store.ends[49], epochs=EPOCHS)
    return store


def live(folder: StoreFolder, **says: Any) -> ScriptedBroker:
    return ScriptedBroker(**({"confirm": folder.ends[54], "epochs": EPOCHS} | says))


def test_without_a_live_broker_the_bound_comes_from_the_checkpoint(folder: StoreFolder) -> None:
    store = open_store(str(folder.root))
    assert (store.bound, store.bound_source, store.bound_note) == (folder.ends[49], "checkpoint", "")
    assert len(rows_of_store(store)) == 50


def test_a_checkpoint_with_a_wrong_checksum_gives_no_bound(folder: StoreFolder) -> None:
    page = bytearray(Checkpoint(1, 1, 1, 0, folder.ends[49]).encode())
    path = folder.root / "checkpoint"
    path.write_bytes(page)
    assert open_store(str(folder.root)).bound == folder.ends[49]
    page[38] ^= 0x40  # in the confirm offset
    path.write_bytes(page)
    with pytest.raises(StoreUnreadable, match="checksum and values do not agree.*read another replica"):
        open_store(str(folder.root))


def test_the_live_broker_of_the_store_gives_the_newer_bound(folder: StoreFolder) -> None:
    with serving(live(folder)) as broker:
        store = open_store(str(folder.root), address=broker.address)
        assert (store.bound, store.bound_source) == (folder.ends[54], f"broker {broker.address}")
        assert len(rows_of_store(store)) == 55


def test_a_live_bound_inside_a_record_leaves_that_record_out(folder: StoreFolder) -> None:
    with serving(live(folder, confirm=folder.ends[54] + 5)) as broker:
        store = open_store(str(folder.root), address=broker.address)
        assert (store.bound, len(rows_of_store(store))) == (folder.ends[54] + 5, 55)


def test_a_live_bound_below_the_checkpoint_is_used(folder: StoreFolder) -> None:
    with serving(live(folder, confirm=folder.ends[9], replica_id=2)) as broker:
        store = open_store(str(folder.root), address=broker.address)
        assert (store.bound, store.bound_source) == (folder.ends[9], f"broker {broker.address}")


def test_a_live_bound_of_another_replica_does_not_raise_the_bound(folder: StoreFolder) -> None:
    with serving(live(folder, replica_id=2)) as broker:
        store = open_store(str(folder.root), address=broker.address)
        assert (store.bound, store.bound_source) == (folder.ends[49], "checkpoint")
        assert "another replica" in store.bound_note


def test_a_copy_that_ends_below_the_live_bound_is_read_to_its_last_valid_record(folder: StoreFolder) -> None:
    with serving(live(folder, confirm=folder.ends[-1] + 5000)) as broker:
        store = open_store(str(folder.root), address=broker.address)
        assert store.bound == folder.ends[-1] and "this copy" in store.bound_note
        assert len(rows_of_store(store)) == 60
    segment = folder.root / "commitlog" / f"{folder.ends[55] // 16384 * 16384:020d}"
    data = bytearray(segment.read_bytes())
    data[folder.ends[55] % 16384 + 200] ^= 1  # torn while it was copied: the CRC of a body
    segment.write_bytes(data)
    with serving(live(folder, confirm=folder.ends[-1])) as broker:
        store = open_store(str(folder.root), address=broker.address)
        assert (store.bound, len(rows_of_store(store))) == (folder.ends[55], 56)


def test_a_java_broker_without_confirm_offset_is_noted_in_the_bound(folder: StoreFolder) -> None:
    with serving(live(folder, confirm=None, replica_id=None)) as broker:
        store = open_store(str(folder.root), address=broker.address)
        assert (store.bound, store.bound_source) == (folder.ends[49], "checkpoint")
        assert "reports no confirm offset" in store.bound_note


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (
            {"broker_name": "broker-b"},
            "is of DefaultCluster/broker-b, but the store of DefaultCluster/broker-a",
        ),
        ({"cluster_name": "Other"}, "is of Other/broker-a"),
        ({"epochs": ((1, 0), (2, 16384))}, "different logs, or the store was copied before a truncation"),
        ({"epochs": ((1, 0),)}, "different logs"),
        ({"epochs": ((5, 60_000),)}, "knows no epoch below .* name a broker whose log begins earlier"),
        ({"epochs": ()}, "reports no epochs"),
        ({"confirm": -1}, "says '-1' for confirmOffset"),
        ({"code": 3}, "refuses request 1007 .code 3"),
        ({"raw": b"HTTP/1.1 400 Bad Request\r\n\r\n"}, "no reply of a broker"),
        ({"raw": struct.pack(">II", 1 << 30, 10)}, "no reply of a broker"),
        ({"raw": struct.pack(">II", 12, 8) + b"[[[[[[[["}, "cannot be read"),
        ({"raw": struct.pack(">II", 100, 90) + b"{}"}, "does not answer"),
        ({"raw": b""}, "does not answer"),
    ],
)
def test_a_live_broker_of_another_store_or_no_broker_is_named(
    folder: StoreFolder, says: dict[str, Any], why: str
) -> None:
    with serving(live(folder, **says)) as broker:
        with pytest.raises(LiveBrokerFailed, match=why):
            open_store(str(folder.root), address=broker.address)


def test_an_unreachable_or_malformed_address_is_refused_with_a_hint(folder: StoreFolder) -> None:
    with serving(live(folder)) as broker:
        gone = broker.address
    with pytest.raises(LiveBrokerFailed, match="leave address out"):
        open_store(str(folder.root), address=gone)
    for address in ("", "here", "host:0", "host:port", ";"):
        with pytest.raises(OptionError, match="is not HOST:PORT"):
            open_store(str(folder.root), address=address)


def test_the_first_address_of_the_stores_own_broker_set_is_used(folder: StoreFolder) -> None:
    with serving(live(folder)) as gone:
        pass
    with serving(live(folder, broker_name="broker-b")) as other, serving(live(folder)) as own:
        addresses = f"{gone.address};{other.address}; {own.address}"
        assert open_store(str(folder.root), address=addresses).bound_source == f"broker {own.address}"


def test_a_live_bound_is_read_again_until_the_epochs_before_and_after_agree(folder: StoreFolder) -> None:
    later = [{"epochs": ((1, 0),)}, {"epochs": EPOCHS}]
    with serving(live(folder, epochs=((1, 0), (2, 9000)), later=later)) as broker:
        store = open_store(str(folder.root), address=broker.address)
        assert store.bound == folder.ends[54]
        assert broker.asked == [1007, 28, 1007, 28, 1007, 28, 1007]


def test_a_truncation_of_the_live_log_below_the_bound_is_found_at_the_end(folder: StoreFolder) -> None:
    with serving(live(folder)) as broker:
        store = open_store(str(folder.root), address=broker.address)
        broker.epochs = (*EPOCHS, (4, folder.ends[54]))
        check_epochs(store)
        broker.epochs = (*EPOCHS, (4, folder.ends[53]))
        with pytest.raises(EpochChanged, match=f"broker {broker.address}"):
            rows_of_store(store)
    with pytest.raises(LiveBrokerFailed, match="does not answer"):
        check_epochs(store)


def test_a_live_broker_with_a_shorter_log_confirms_its_own_range_only(folder: StoreFolder) -> None:
    """A member that lags, and one whose first segments were deleted by retention."""
    for says in ({"max_offset": 9000, "confirm": 9000, "epochs": EPOCHS[:1]}, {"epochs": EPOCHS[1:]}):
        with serving(live(folder, replica_id=2, **says)) as broker:
            store = open_store(str(folder.root), address=broker.address)
            assert store.bound == min(folder.ends[49], says.get("confirm", 1 << 40))
            rows_of_store(store)
            broker.epochs = ((9, says["epochs"][0][1]),)
            with pytest.raises(EpochChanged):
                check_epochs(store)


def test_a_given_bound_above_the_committed_one_is_refused(folder: StoreFolder) -> None:
    store = open_store(str(folder.root))
    given = up_to(store, folder.ends[9])
    assert (given.bound_source, len(rows_of_store(given))) == ("given", 10)
    with pytest.raises(OptionError, match="above the committed bound"):
        up_to(store, store.bound + 1)


def test_latest_is_the_end_of_the_records_and_needs_the_option(folder: StoreFolder) -> None:
    store = open_store(str(folder.root))
    with pytest.raises(UncommittedRefused, match="allowUncommitted=true"):
        up_to_latest(store, allow_uncommitted=False)
    latest = up_to_latest(store, allow_uncommitted=True)
    assert (latest.bound, latest.bound_source) == (folder.ends[-1], "latest")
    assert len(rows_of_store(latest)) == 60


def test_latest_is_found_in_any_segment_regardless_of_the_checkpoint(tmp_path: Path) -> None:
    for count in (0, 1, 21, 22, 23, 44):
        folder = StoreFolder(tmp_path / str(count), segment_bytes=16384)
        for _ in range(count):
            folder.add(body=bytes(640))
        folder.write(confirm=0)
        (folder.root / "commitlog" / f"{-(-len(folder.log) // 16384 or -1) * 16384:020d}").write_bytes(
            bytes(16384)
        )
        latest = up_to_latest(open_store(str(folder.root)), allow_uncommitted=True)
        assert latest.bound >= (folder.ends or [0])[-1], (
            "the rest of a segment after its last record is no data"
        )
        assert len(rows_of_store(latest)) == count


def test_a_store_that_ran_contract_a_is_read_only_with_the_option(folder: StoreFolder) -> None:
    mark = folder.root / CONTRACT_A
    for text in ("contract=A\nepoch=1\nfrom=0\n", "contract=A\nepoch=1\nfrom=0\nuntil=900\n"):
        mark.write_text(text)
        with pytest.raises(UncommittedRefused, match="ran contract A.*allowUncommitted=true"):
            open_store(str(folder.root))
        assert open_store(str(folder.root), allow_uncommitted=True).contract == "A"
    mark.unlink()
    assert open_store(str(folder.root)).contract == ""
    with serving(live(folder, contract_a=True)) as broker:
        with pytest.raises(UncommittedRefused, match="ran contract A"):
            open_store(str(folder.root), address=broker.address)


def test_a_contract_a_range_removed_by_retention_does_not_refuse_the_store(folder: StoreFolder) -> None:
    (folder.root / CONTRACT_A).write_text("contract=A\nepoch=1\nfrom=0\nuntil=16384\n")
    with pytest.raises(UncommittedRefused):
        open_store(str(folder.root))
    (folder.root / "commitlog" / f"{0:020d}").unlink()
    assert open_store(str(folder.root)).contract == ""


@pytest.mark.parametrize("name", ["clean-shutdown", "after-kill-9"])
def test_the_bound_and_the_end_of_a_java_brokers_store_are_read(tmp_path: Path, name: str) -> None:
    golden = Path(__file__).parents[2] / "vectors" / "store" / name
    shutil.copyfile(golden / "checkpoint", tmp_path / "checkpoint")
    (tmp_path / "commitlog").mkdir()
    for segment in (golden / "commitlog").glob("*.gz"):
        data = gzip.decompress(segment.read_bytes())
        (tmp_path / "commitlog" / segment.stem).write_bytes(data.ljust(262144, b"\0"))
    (tmp_path / "epochFileCheckpoint").write_bytes(b"1\n0\n1-0\n")
    lines = [json.loads(line) for line in (golden / "messages.jsonl").read_text().splitlines()]
    messages = [
        line for line in lines if "physicalOffset" in line
    ]  # the other values are no end of a segment
    ends = [message["physicalOffset"] + message["size"] for message in messages]
    store = open_store(str(tmp_path))
    assert store.bound == json.loads((golden / "checkpoint.json").read_text())["confirmPhyOffset"]
    assert up_to_latest(store, allow_uncommitted=True).bound == max(ends)
    committed = sorted(
        message["physicalOffset"] for message, end in zip(messages, ends, strict=True) if end <= store.bound
    )
    offsets = [
        at
        for stretch in stretches_of(store)
        for chunk in chunks_of(store.files, stretch)
        for at in chunk.offsets.tolist()
    ]
    assert offsets == committed
