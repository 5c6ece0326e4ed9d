"""Several stores in one read: one replica of each broker set is read, a false replica is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs

from sparkreplay.errors import StoreUnreadable
from sparkreplay.store.remotefiles import RemoteFiles
from sparkreplay.store.replicas import choose_replicas
from sparkreplay.store.snapshot import StoreSnapshot, open_store, up_to
from tests.unit.sparkreplay.storefolder import StoreFolder
from tests.unit.sparkreplay.storerows import rows_of_store

EPOCHS = ((1, 0), (2, 16384))
IDENTITY = "DefaultCluster#broker-a#1"


def replica(
    root: Path,
    records: int = 60,
    *,
    committed: int | None = None,
    epochs: tuple[tuple[int, int], ...] = EPOCHS,
    identity: str | None = IDENTITY,
    fill: int = 7,
) -> StoreSnapshot:
    store = StoreFolder(root, segment_bytes=16384)
    for _ in range(records):
        store.add(body=bytes([fill]) * 700)
    store.write(confirm=store.ends[(committed or records) - 1], epochs=epochs)
    (root / "brokerIdentity").unlink()
    if identity is not None:
        (root / "brokerIdentity").write_text(identity)
    return open_store(str(root))


def test_the_replica_with_the_newest_epoch_then_the_highest_bound_is_read(tmp_path: Path) -> None:
    behind = replica(tmp_path / "1", 40)
    further = replica(tmp_path / "2", 60, committed=50, identity="DefaultCluster#broker-a#2")
    newest = replica(
        tmp_path / "3",
        60,
        committed=45,
        epochs=(*EPOCHS, (3, further.bound)),
        identity="DefaultCluster#broker-a#3",
    )
    assert choose_replicas([behind, further]) == choose_replicas([further, behind]) == [further]
    assert choose_replicas([behind, newest, further]) == [newest]


def test_every_replica_gives_the_same_rows_up_to_a_common_bound(tmp_path: Path) -> None:
    replicas = [replica(tmp_path / str(number), 45 + 5 * number) for number in range(3)]
    common = min(store.bound for store in replicas)
    expected = rows_of_store(replicas[0])
    assert len(expected) == 45
    assert all(rows_of_store(up_to(store, common)) == expected for store in replicas)


def test_different_broker_sets_are_all_read_in_the_given_order(tmp_path: Path) -> None:
    b = replica(tmp_path / "b", identity="DefaultCluster#broker-b#1", fill=8)
    a = replica(tmp_path / "a")
    also_b = replica(tmp_path / "b2", 20, identity="DefaultCluster#broker-b#2", fill=8)
    assert choose_replicas([b, a, also_b]) == [b, a]


def test_different_broker_sets_of_one_name_are_refused(tmp_path: Path) -> None:
    store = replica(tmp_path / "a")
    for number, (other, why) in enumerate(
        (
            (replica(tmp_path / "1", epochs=((1, 0), (3, 16384))), "their epochs differ"),
            (replica(tmp_path / "2", epochs=((1, 0),)), "their epochs differ"),
            (replica(tmp_path / "3", fill=8), "begin with different records"),
            (
                replica(tmp_path / "4", identity="Other#broker-a#1"),
                r"of the clusters \w+ and \w+",
            ),
        )
    ):
        for both in ([store, other], [other, store]):
            with pytest.raises(StoreUnreadable, match=f"{why}.*in reads of their own"):
                choose_replicas(both)
        assert choose_replicas([other]) == [other], number


def test_stores_without_a_broker_identity_are_not_taken_as_replicas(tmp_path: Path) -> None:
    one = replica(tmp_path / "1" / "store", identity=None)
    other = replica(tmp_path / "2" / "store", identity=None)
    assert one.broker_name == other.broker_name == "store"
    with pytest.raises(StoreUnreadable, match="copy the file brokerIdentity along"):
        choose_replicas([one, other])


def test_a_store_is_named_once(tmp_path: Path) -> None:
    store = replica(tmp_path)
    with pytest.raises(StoreUnreadable, match="is named twice"):
        choose_replicas([store, open_store(str(tmp_path))])


def test_a_replica_with_deleted_first_segments_is_recognised(tmp_path: Path) -> None:
    whole = replica(tmp_path / "1")
    replica(tmp_path / "2", identity="DefaultCluster#broker-a#2")
    (tmp_path / "2" / "commitlog" / f"{0:020d}").unlink()
    StoreFolder(tmp_path / "2").write_epochs(EPOCHS[1:])
    shorter = open_store(RemoteFiles(str(tmp_path / "2"), fs.LocalFileSystem()))
    assert choose_replicas([whole, shorter]) == [whole]
