"""A query with faults: exact rows, or an error that says what is wrong, where, and what to do."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkreplay.errors import BrokerSetMissing, DataLost, ForeignLog, OffsetUnreadable, StoreUnreadable
from sparkreplay.records.walk import RecordChunk, chunks_of
from sparkreplay.stream import admission
from tests.unit.sparkreplay.storefolder import StoreFolder
from tests.unit.sparkreplay.streamscene import Query


def add(folder: StoreFolder, *numbers: int) -> None:
    for number in numbers:
        folder.add(queue_id=number % 4, body=bytes(number % 9 * 10), properties=f"UNIQ_KEY\x01{number}\x02")


def ids(*numbers: int) -> list[str]:
    return [str(number) for number in numbers]


@pytest.fixture
def folder(tmp_path: Path) -> StoreFolder:
    made = StoreFolder(tmp_path / "one", segment_bytes=4096)
    add(made, *range(100))
    return made


def empty(root: Path) -> StoreFolder:
    """The store of a broker that has stored nothing yet."""
    root.mkdir()
    made = StoreFolder(root, segment_bytes=4096)
    made.write_epochs(((1, 0),))
    (root / "brokerIdentity").write_text("DefaultCluster#broker-a#1")
    (root / "checkpoint").write_bytes(struct.pack(">5q", 0, 0, 0, 0, 0).ljust(4096, b"\0"))
    return made


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_query_started_on_an_empty_store_reads_the_log_from_its_later_start(
    tmp_path: Path, folder: StoreFolder, start: str
) -> None:
    slave = empty(tmp_path / "slave")
    query = Query(path=str(slave.root), startingOffsets=start)
    assert query.run() == []
    slave.log, slave.ends, slave.log_min = (
        folder.log,
        folder.ends,
        8192,
    )  # copied from a master that had no more
    slave.write()
    query.run()
    assert query.ids == ids(*(number for number, end in enumerate(folder.ends) if end > 8192))


def test_a_query_with_a_start_offset_on_an_empty_store_loses_nothing_silently(
    tmp_path: Path, folder: StoreFolder
) -> None:
    slave = empty(tmp_path / "slave")
    query = Query(path=str(slave.root), startingOffsets="0")
    assert query.run() == []
    slave.log, slave.ends, slave.log_min = folder.log, folder.ends, 8192
    slave.write()
    with pytest.raises(DataLost, match=r"\[0, 8192\)"):
        query.run()


def test_a_missing_store_is_named_and_read_once_it_exists(tmp_path: Path, folder: StoreFolder) -> None:
    query = Query(path=str(folder.root))
    with pytest.raises(StoreUnreadable, match=f"{folder.root}: .*name a broker's storePathRootDir"):
        query.run()
    folder.write()
    assert query.run() == [100]


def deleting_at_the_first_walk(
    folder: StoreFolder, segments: int
) -> Callable[[Any, Any], Iterator[RecordChunk]]:
    def walked(files: Any, stretch: Any) -> Iterator[RecordChunk]:
        if not folder.log_min:
            folder.delete_first(segments)
        return chunks_of(files, stretch)

    return walked


@pytest.mark.parametrize("fails", ["true", "false"])
def test_retention_between_opening_and_walking_a_store_is_reported_as_data_loss(
    folder: StoreFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    path = folder.write()
    folder.write_queues()
    query = Query(path=path, maxOffsetsPerTrigger="30", failOnDataLoss=fails)
    query.trigger()
    monkeypatch.setattr(admission, "chunks_of", deleting_at_the_first_walk(folder, 2))
    if fails == "true":
        with pytest.raises(DataLost, match=rf"\[{folder.ends[29]}, 8192\)"):
            query.trigger()
    else:
        query.run()
        rest = [number for number, end in enumerate(folder.ends) if end > 8192]
        assert query.ids == ids(*range(30), *rest) and f"[{folder.ends[29]}, 8192)" in caplog.text


def test_the_planned_range_of_a_missing_set_is_reported(
    tmp_path: Path, folder: StoreFolder, caplog: pytest.LogCaptureFixture
) -> None:
    other = StoreFolder(tmp_path / "b", segment_bytes=4096)
    add(other, *range(100, 200))
    paths = [folder.write(), other.write()]
    (other.root / "brokerIdentity").write_text("DefaultCluster#broker-b#1")
    query = Query(path=json.dumps(paths), maxOffsetsPerTrigger="20")
    query.trigger()
    query.plan_batch()
    start, end = (json.loads(text)["sets"]["broker-b"]["offset"] for text in query.offsets)
    query.restart(path=paths[0])
    with pytest.raises(BrokerSetMissing, match=rf"broker-b.*leave out \[{start}, {end}\)"):
        query.trigger()
    query.restart(path=paths[0], failOnDataLoss="false")
    query.run()
    assert f"[{start}, {end})" in caplog.text
    query.restart(path=json.dumps(paths))
    query.run()
    left = [number for number, at in enumerate(other.ends, 100) if not start < at <= end]
    assert sorted(map(int, query.ids)) == [*range(100), *left]


Bend = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    "bend",
    [
        lambda offset: offset.update(version=True),
        lambda offset: offset.update(sets={}),
        lambda offset: offset.update(initial="yes"),
        lambda offset: offset.update(initial=True),
        lambda offset: offset["sets"]["broker-a"].update(began=10**6),
        lambda offset: offset["sets"]["broker-a"].update(offset=10**30),
        lambda offset: offset["sets"]["broker-a"].update(offset=True),
        lambda offset: offset["sets"]["broker-a"].update(epoch_start=10**6),
        lambda offset: offset["sets"]["broker-a"].pop("epoch"),
        lambda offset: offset["sets"]["broker-a"].pop("epoch_start"),
    ],
)
def test_an_offset_that_contradicts_itself_is_refused_and_drops_and_repeats_nothing(
    folder: StoreFolder, bend: Bend
) -> None:
    query = Query(path=folder.write(), maxOffsetsPerTrigger="30")
    query.trigger()
    bent = json.loads(query.offsets[0])
    bend(bent)
    for committed in (0, 1):
        query.offsets, query.committed = [json.dumps(bent)], committed
        with pytest.raises(OffsetUnreadable, match="checkpointLocation"):
            query.trigger()


@pytest.mark.parametrize("offset", ["a segment's end", "a record's end", "a byte", "far above"])
@pytest.mark.parametrize("planned", [False, True])
def test_an_offset_that_was_moved_by_hand_reads_nothing(
    folder: StoreFolder, offset: str, planned: bool
) -> None:
    path = folder.write()
    query = Query(path=path, maxOffsetsPerTrigger="30")
    query.trigger()
    query.plan_batch()
    bent = json.loads(query.offsets[0])
    moved = {"a segment's end": 4096, "a record's end": folder.ends[20], "a byte": folder.ends[29] + 1}
    bent["sets"]["broker-a"]["offset"] = moved.get(offset, 10**9)
    query.offsets = [json.dumps(bent), *query.offsets[1 : 1 + planned]]
    query.restart(path=path)
    if offset == "far above" and not planned:
        assert query.run() == []  # as with a replica that lags
    else:
        with pytest.raises((ForeignLog, OffsetUnreadable)):
            query.run()
    assert query.ids == ids(*range(30))


def test_a_batch_that_ends_before_it_begins_is_refused(folder: StoreFolder) -> None:
    query = Query(path=folder.write(), maxOffsetsPerTrigger="30")
    query.trigger()
    query.plan_batch()
    query.offsets.reverse()
    with pytest.raises(
        OffsetUnreadable, match=f"broker-a the batch that ends there begins at {folder.ends[59]}"
    ):
        query.read_batch()
