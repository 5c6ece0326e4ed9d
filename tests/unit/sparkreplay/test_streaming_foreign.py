"""A checkpoint refuses any other log of the same name, and never its own log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparkreplay.errors import DataLost, ForeignLog, LogTruncated, OffsetUnreadable, StoreUnreadable
from tests.unit.sparkreplay.storefolder import StoreFolder
from tests.unit.sparkreplay.streamscene import Query

SEGMENT_BYTES = 4096


def store(root: Path, count: int = 100, *, stored_ms: int = 1_700_000_000_000) -> StoreFolder:
    """Logs that differ in nothing but their store times."""
    made = StoreFolder(root, SEGMENT_BYTES)
    add(made, count, stored_ms=stored_ms)
    return made


def add(folder: StoreFolder, count: int, *, stored_ms: int = 1_700_000_000_000) -> None:
    for number in range(len(folder.ends), len(folder.ends) + count):
        folder.add(
            queue_id=number % 4,
            body=bytes(number % 9 * 10),
            properties=f"UNIQ_KEY\x01{number}\x02",
            stored_ms=stored_ms + number,
        )


def copy(folder: StoreFolder, root: Path) -> StoreFolder:
    made = StoreFolder(root, folder.segment_bytes)
    made.log[:], made.ends[:] = folder.log, folder.ends
    made.next_queue_offset.update(folder.next_queue_offset)
    return made


def identity(folder: StoreFolder, text: str) -> None:
    (folder.root / "brokerIdentity").write_text(text)


def marks(query: Query) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(query.offsets[-1])["sets"]["broker-a"]["log"]
    return found


@pytest.fixture
def query(tmp_path: Path) -> Query:
    """It has read 60 messages of the log at `one`."""
    made = Query(path=store(tmp_path / "one").write(), maxOffsetsPerTrigger="60")
    made.trigger()
    return made


@pytest.mark.parametrize("count", [1, 59, 60, 61, 100, 300])
def test_a_recreated_log_of_any_length_is_refused_at_its_first_record(
    tmp_path: Path, query: Query, count: int
) -> None:
    path = store(tmp_path / "recreated", count, stored_ms=1_800_000_000_000).write()
    query.restart(path=path)
    with pytest.raises(
        ForeignLog, match=rf"broker-a: .*{path}.*offset \d+.*another record at 0\b.*new checkpointLocation"
    ):
        query.trigger()
    query.restart(path=path, failOnDataLoss="false")
    with pytest.raises(ForeignLog):
        query.trigger()


def test_a_planned_batch_is_not_repeated_from_another_log(tmp_path: Path, query: Query) -> None:
    query.plan_batch()
    for count in (10, 100, 300):
        query.restart(path=store(tmp_path / str(count), count, stored_ms=1_800_000_000_000).write())
        with pytest.raises(ForeignLog):
            query.read_batch()


def test_a_store_that_is_replaced_under_a_running_query_is_noticed(tmp_path: Path, query: Query) -> None:
    query.run()
    shutil.rmtree(tmp_path / "one")
    store(tmp_path / "one", 3, stored_ms=1_800_000_000_000).write()
    with pytest.raises(ForeignLog):
        query.trigger()


def test_another_cluster_is_recognised_by_its_name(tmp_path: Path, query: Query) -> None:
    other = store(tmp_path / "other", 300, stored_ms=1_800_000_000_000)
    path = other.write()
    other.delete_first(5)
    query.restart(path=path, failOnDataLoss="false")
    identity(other, "Staging#broker-a#1")
    with pytest.raises(ForeignLog, match="of cluster Staging, that one of cluster DefaultCluster"):
        query.trigger()
    query.restart(path=path)
    identity(other, "DefaultCluster#broker-a#1")
    with pytest.raises(DataLost):  # it cannot be distinguished from the set's own log after retention
        query.trigger()


def test_a_recreated_log_with_other_epochs_is_foreign_and_not_truncated(tmp_path: Path, query: Query) -> None:
    recreated = store(tmp_path / "recreated", 300, stored_ms=1_800_000_000_000)
    query.restart(path=recreated.write(epochs=((7, 0),)))
    with pytest.raises(ForeignLog):
        query.trigger()


def test_a_log_that_was_set_back_and_written_again_in_the_same_epoch_is_refused(
    tmp_path: Path, query: Query
) -> None:
    query.run()
    whole = store(tmp_path / "whole")
    before = store(tmp_path / "one", 98)  # a snapshot of the disk, of a moment before
    assert whole.log.startswith(before.log)
    shutil.rmtree(tmp_path / "one")
    query.restart(path=before.write())
    assert query.trigger() == 0  # up to its end it is the log that was read
    add(before, 20, stored_ms=1_800_000_000_000)
    before.write()
    with pytest.raises(ForeignLog, match=r"other records in \[\d+, \d+\)"):
        query.trigger()


def test_the_end_of_a_log_is_marked_where_a_segment_ends_too(tmp_path: Path) -> None:
    one = store(tmp_path / "one")
    query = Query(path=one.write(confirm=2 * SEGMENT_BYTES))
    query.run()
    assert list(marks(query)["heads"]) == ["0", str(SEGMENT_BYTES)] and marks(query)["tail"] == ""
    other = copy(one, tmp_path / "other")
    at = SEGMENT_BYTES + 60
    other.log[at] ^= 1  # the store time of the second segment's first record
    query.restart(path=other.write())
    with pytest.raises(ForeignLog, match=f"another record at {SEGMENT_BYTES}"):
        query.trigger()


def test_a_position_has_the_same_marks_on_every_replica_and_with_any_batches(tmp_path: Path) -> None:
    one = store(tmp_path / "one")
    two = copy(one, tmp_path / "two")
    path = two.write()
    add(two, 50)  # it is further, and committed as far
    two.write(confirm=one.ends[-1])
    small = Query(path=one.write(), maxOffsetsPerTrigger="7")
    while small.trigger():
        small.restart(path=path if small.committed % 2 else str(one.root), maxOffsetsPerTrigger="7")
    large = Query(path=path)
    large.trigger()
    assert small.offsets[-1] == large.offsets[-1]
    assert len(small.offsets[-1]) < 400


def test_a_copy_without_identity_continues_the_query_and_keeps_its_cluster(
    tmp_path: Path, query: Query
) -> None:
    named_by_its_folder = copy(store(tmp_path / "whole"), tmp_path / "broker-a")
    query.restart(path=named_by_its_folder.write())
    (named_by_its_folder.root / "brokerIdentity").unlink()
    assert query.run() == [40] and marks(query)["cluster"] == "DefaultCluster"


@pytest.mark.parametrize("count", [10, 100, 300])
def test_an_initial_offset_without_rows_is_bound_to_its_log(tmp_path: Path, count: int) -> None:
    """Spark keeps the initial offset when the first batch is empty."""
    one = store(tmp_path / "one")
    query = Query(path=one.write(), startingOffsets="latest")
    query.offsets, query.committed = [query.start_offset()], 1
    assert query.trigger() == 0
    query.restart(path=store(tmp_path / "recreated", count, stored_ms=1_800_000_000_000).write())
    with pytest.raises(ForeignLog):
        query.trigger()
    query.restart(path=str(one.root))
    add(one, 5)
    one.write()
    assert query.run() == [5]


def test_marks_stay_after_retention_deleted_their_segments(tmp_path: Path) -> None:
    one = store(tmp_path / "one", 200)
    query = Query(path=one.write(confirm=one.ends[99]))
    query.trigger()
    kept = copy(one, tmp_path / "kept")
    whole = Query(path=kept.write(confirm=one.ends[99]))
    whole.trigger()
    one.delete_first(one.ends[99] // SEGMENT_BYTES)
    for each, folder in ((query, one), (whole, kept)):
        folder.write()
        each.trigger()
    assert query.offsets == whole.offsets and "0" in marks(query)["heads"]
    query.restart(path=store(tmp_path / "recreated", 2, stored_ms=1_800_000_000_000).write())
    with pytest.raises(ForeignLog, match="another record at 0"):
        query.trigger()


def test_an_offset_of_version_1_gets_marks_with_the_next_batch(tmp_path: Path, query: Query) -> None:
    old = json.loads(query.offsets[-1])
    old["version"] = 1
    del old["sets"]["broker-a"]["log"]
    query.offsets[-1] = json.dumps(old)
    query.run()
    assert query.ids == [str(number) for number in range(100)]
    assert marks(query)["cluster"] == "DefaultCluster" and len(marks(query)["heads"]) == 2
    query.restart(path=store(tmp_path / "recreated", 300, stored_ms=1_800_000_000_000).write())
    with pytest.raises(ForeignLog):
        query.trigger()


def test_a_foreign_log_among_several_sets_is_named_and_nothing_is_read(tmp_path: Path) -> None:
    stores = {name: store(tmp_path / name) for name in ("a", "b")}
    paths = [made.write() for made in stores.values()]
    identity(stores["b"], "DefaultCluster#broker-b#1")
    query = Query(path=json.dumps(paths), maxOffsetsPerTrigger="20")
    query.trigger()
    query.restart(path=json.dumps(paths[::-1]))  # their order does not matter
    query.plan_batch()
    assert len(query.read_batch()) == 180
    recreated = store(tmp_path / "recreated", 300, stored_ms=1_800_000_000_000)
    paths[1] = recreated.write()
    identity(recreated, "DefaultCluster#broker-b#1")
    query.restart(path=json.dumps(paths))
    with pytest.raises(ForeignLog, match="broker set broker-b"):
        query.read_batch()
    query.restart(path=json.dumps([*paths, str(stores["b"].root)]))
    with pytest.raises(StoreUnreadable, match="no replicas of one set"):
        query.read_batch()


@pytest.mark.parametrize("left", [0, 5, 35, 59, 60, 85, 99])
def test_a_tail_truncated_by_a_failover_is_a_truncation_and_not_a_foreign_log(
    tmp_path: Path, left: int
) -> None:
    """100 messages were read, 60 were committed, and the new master has the first `left`."""
    one = store(tmp_path / "one")
    path = one.write(confirm=min(one.ends[59], [0, *one.ends][left]))
    latest = {"endingOffsets": "latest", "allowUncommitted": "true"}
    query = Query(path=path, **latest)
    assert query.run() == [100]
    cut = store(tmp_path / "cut", left)
    end = len(cut.log)
    epochs = ((1, 0), (2, end)) if left else ((2, 0),)
    shutil.rmtree(one.root)
    cut.root = one.root
    cut.write(confirm=end)
    query.restart(path=path, **latest)
    assert query.trigger() == 0  # it may be a replica that lags
    for count in (1, 40, 100):
        add(cut, count, stored_ms=1_800_000_000_000)
        cut.write(confirm=end, epochs=epochs)
        query.restart(path=path, **latest)
        with pytest.raises(LogTruncated) as raised:
            query.trigger()
        assert raised.value.intact == end


@pytest.mark.parametrize(
    "log",
    [
        "marks",
        {},
        {"cluster": "c", "heads": {}},
        {"cluster": 1, "heads": {}, "tail": ""},
        {"cluster": "c", "heads": [], "tail": ""},
        {"cluster": "c", "heads": {"x": "0123456789abcdef"}, "tail": ""},
        {"cluster": "c", "heads": {"9" * 5000: "0123456789abcdef"}, "tail": ""},
        {"cluster": "c", "heads": {"0": "0123"}, "tail": ""},
        {"cluster": "c", "heads": {"0": None}, "tail": ""},
        {"cluster": "c", "heads": {}, "tail": "0123456789ABCDEF"},
        {"cluster": "c", "heads": {}, "tail": 5},
    ],
)
def test_marks_that_the_query_has_not_written_are_refused(query: Query, log: object) -> None:
    bent = json.loads(query.offsets[-1])
    bent["sets"]["broker-a"]["log"] = log
    query.offsets[-1] = json.dumps(bent)
    with pytest.raises(OffsetUnreadable, match="marks of the log"):
        query.trigger()
