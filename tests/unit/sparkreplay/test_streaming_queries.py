"""A streaming query from batch to batch: every committed message once, whatever happens between batches."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sparkreplay.errors import (
    BrokerSetMissing,
    DataLost,
    ForeignLog,
    LogCorrupted,
    LogTruncated,
    OptionError,
    ReplicaBehind,
)
from sparkreplay.store.replicas import choose_replicas
from sparkreplay.store.snapshot import StoreSnapshot
from sparkreplay.stream import request as streamrequest
from tests.unit.sparkreplay.storefolder import StoreFolder, record
from tests.unit.sparkreplay.streamscene import Query


def add(folder: StoreFolder, *numbers: int, topic: str = "orders") -> None:
    for number in numbers:
        folder.add(
            topic=topic,
            queue_id=number % 4,
            body=bytes(number % 9 * 10),
            properties=f"UNIQ_KEY\x01{number}\x02",
        )


def ids(*numbers: int) -> list[str]:
    return [str(number) for number in numbers]


@pytest.fixture
def folder(tmp_path: Path) -> StoreFolder:
    made = StoreFolder(tmp_path / "one", segment_bytes=4096)
    add(made, *range(100))
    return made


def replica(folder: StoreFolder, root: Path) -> StoreFolder:
    """Another member's copy: same bytes, same broker set, a folder of its own."""
    copy = StoreFolder(root, folder.segment_bytes)
    copy.log[:], copy.ends[:] = folder.log, folder.ends
    copy.next_queue_offset.update(folder.next_queue_offset)
    return copy


def test_a_query_reads_stored_messages_and_then_new_ones(folder: StoreFolder) -> None:
    query = Query(path=folder.write())
    assert query.run() == [100]
    assert query.trigger() == 0
    add(folder, *range(100, 160))  # into new files too
    folder.write()
    assert query.run() == [60]
    assert query.ids == ids(*range(160))


def test_a_batch_ends_at_the_bound_and_a_cut_record_is_in_the_next_one(folder: StoreFolder) -> None:
    query = Query(path=folder.write(confirm=folder.ends[39] + 5))
    assert query.run() == [40]
    folder.write(confirm=folder.ends[40] - 1)
    assert query.run() == []
    folder.write()
    assert query.run() == [60] and query.ids == ids(*range(100))


def test_a_bound_inside_the_filler_at_a_segments_end_is_passed_in_the_next_batch(folder: StoreFolder) -> None:
    last = max(end for end in folder.ends if end < 4096)
    query = Query(path=folder.write(confirm=last + 8))
    before = query.run()
    folder.write()
    query.run()
    assert before == [folder.ends.index(last) + 1] and query.ids == ids(*range(100))


@pytest.mark.parametrize("limit", [{"maxBytesPerTrigger": "4096"}, {"maxOffsetsPerTrigger": "7"}])
def test_limited_batches_together_return_every_message_once(
    folder: StoreFolder, limit: dict[str, str]
) -> None:
    query = Query(path=folder.write(), **limit)
    batches = query.run()
    assert len(batches) > 3 and query.ids == ids(*range(100))
    if "maxOffsetsPerTrigger" in limit:
        assert batches == [7] * 14 + [2]


def test_a_limit_counts_messages_before_filters(folder: StoreFolder) -> None:
    query = Query(path=folder.write(), maxOffsetsPerTrigger="10", queues="1")
    batches = query.run()
    assert len(batches) == 10 and max(batches) <= 3 and sum(batches) == 25


def test_an_available_now_trigger_ignores_the_limit(folder: StoreFolder) -> None:
    query = Query(path=folder.write(), maxOffsetsPerTrigger="7")
    query.plan_batch(everything=True)
    assert len(query.read_batch()) == 100


@pytest.mark.parametrize("split", ["4096", "1g"])
def test_a_batch_that_was_planned_before_a_crash_has_the_same_rows_after_it(
    folder: StoreFolder, split: str
) -> None:
    path = folder.write()
    query = Query(path=path, maxOffsetsPerTrigger="30")
    query.trigger()
    query.plan_batch()
    once = query.read_batch()
    add(folder, *range(100, 150))
    folder.write()
    query.restart(path=path, splitBytes=split)
    assert query.read_batch() == once and [row["msg_id"] for row in once] == ids(*range(30, 60))
    query.run()
    assert query.ids == ids(*range(150))


def test_a_checkpoint_whose_offset_is_no_record_boundary_fails_and_drops_nothing(folder: StoreFolder) -> None:
    query = Query(path=folder.write())
    query.plan_batch()
    bent = json.loads(query.offsets[0])
    bent["sets"]["broker-a"]["offset"] -= 1
    query.offsets[0] = json.dumps(bent)
    with pytest.raises(ForeignLog, match="the checkpoint was changed"):
        query.read_batch()
    del bent["sets"]["broker-a"]["log"]
    query.offsets[0] = json.dumps(bent)
    with pytest.raises(LogCorrupted, match="crosses the seam"):
        query.read_batch()


def test_a_batch_that_is_found_through_the_consume_queues_has_the_same_rows(folder: StoreFolder) -> None:
    add(folder, *range(100, 200), topic="payments")
    path = folder.write()
    folder.write_queues()
    query = Query(path=path, index="consumequeue", topic="orders", maxOffsetsPerTrigger="30")
    query.trigger()
    query.plan_batch()
    found = query.read_batch()
    query.restart(path=path, topic="orders")
    assert query.read_batch() == found
    query.restart(path=path, index="consumequeue", topic="orders")
    query.run()
    assert query.ids == ids(*range(100))


@pytest.mark.parametrize("wanted", [1, 3])
def test_a_batch_has_about_the_requested_number_of_partitions(tmp_path: Path, wanted: int) -> None:
    folder = StoreFolder(tmp_path, segment_bytes=65536)
    add(folder, *range(200))
    query = Query(path=folder.write(), minPartitions=str(wanted))
    query.plan_batch()
    start, end = json.loads(query.start_offset()), json.loads(query.offsets[0])
    assert len(query.reader.partitions(start, end)) == wanted


def test_a_split_point_at_a_forged_record_fails_and_larger_splits_succeed(tmp_path: Path) -> None:
    forging = StoreFolder(tmp_path, segment_bytes=32768)
    add(forging, *range(20))
    body_at = forging.ends[-1] + 88
    assert body_at < 4096
    body = bytes(4200 - body_at) + (forged := record(4200))
    forging.add(body=body + record(4200 + len(forged)), properties="UNIQ_KEY\x0120\x02")
    add(forging, *range(21, 100))
    path = forging.write()
    query = Query(path=path, splitBytes="4096")
    query.plan_batch()
    with pytest.raises(LogCorrupted, match="seam"):
        query.read_batch()
    query.restart(path=path, splitBytes="128m")
    query.run()
    assert query.ids == ids(*range(100))


def test_the_first_batch_is_repeated_from_its_start_though_spark_lost_that(
    folder: StoreFolder,
) -> None:
    query = Query(path=folder.write(), startingOffsets=str(folder.ends[9]))
    query.plan_batch()
    query.restart(path=folder.write())  # the option is only for a new query
    assert [row["msg_id"] for row in query.read_batch()] == ids(*range(10, 100))


def test_a_first_batch_that_retention_cut_short_fails_instead_of_shrinking(folder: StoreFolder) -> None:
    path = folder.write()
    query = Query(path=path)
    query.plan_batch()
    folder.delete_first(1)
    query.restart(path=path)
    with pytest.raises(DataLost, match=r"\[0, 4096\)"):
        query.read_batch()


def test_another_replica_continues_where_the_first_stopped(folder: StoreFolder, tmp_path: Path) -> None:
    query = Query(path=folder.write(), maxOffsetsPerTrigger="60")
    query.trigger()
    query.plan_batch()  # and killed
    other = replica(folder, tmp_path / "two")
    add(other, *range(100, 130))
    query.restart(path=other.write(epochs=((1, 0), (2, folder.ends[-1]))))
    query.run()
    assert query.ids == ids(*range(130))


def test_a_replica_whose_log_starts_later_continues_if_it_holds_the_next_message(
    folder: StoreFolder, tmp_path: Path
) -> None:
    query = Query(path=folder.write(confirm=8192))
    query.run()
    other = replica(folder, tmp_path / "two")
    path = other.write()
    other.delete_first(2)
    query.restart(path=path)
    query.run()
    assert query.ids == ids(*range(100))


def test_a_replica_that_lags_is_waited_for(
    folder: StoreFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(path=folder.write(epochs=((1, 0), (2, folder.ends[70]))))
    query.run()
    other = replica(folder, tmp_path / "two")
    path = other.write(confirm=folder.ends[49])
    query.restart(path=path)
    assert query.run() == []
    add(other, 100)
    other.write(epochs=((1, 0), (2, folder.ends[70])))
    assert query.run() == [1] and query.ids == ids(*range(101))
    assert caplog.text.count("nothing is read before it is further") == 1


def test_a_planned_batch_is_not_repeated_from_a_replica_that_misses_part_of_it(
    folder: StoreFolder, tmp_path: Path
) -> None:
    query = Query(path=folder.write())
    query.plan_batch()
    other = replica(folder, tmp_path / "two")
    query.restart(path=other.write(confirm=folder.ends[49]))
    with pytest.raises(ReplicaBehind, match="has caught up"):
        query.read_batch()


def test_the_replica_that_still_holds_the_next_message_is_read(folder: StoreFolder, tmp_path: Path) -> None:
    one = folder.write(confirm=folder.ends[89])
    other = replica(folder, tmp_path / "two")
    two = other.write()
    other.delete_first(1)
    query = Query(path=one, maxOffsetsPerTrigger="5")
    query.trigger()
    query.restart(path=json.dumps([one, two]))
    assert query.run() == [85, 10] and query.ids == ids(*range(100))


def test_retention_while_a_store_is_opened_opens_it_again(
    folder: StoreFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replica(folder, tmp_path / "two")
    query = Query(path=json.dumps([folder.write(confirm=8192), other.write(confirm=8192)]))
    query.run()
    whole = choose_replicas

    def deleting_first(stores: list[StoreSnapshot]) -> list[StoreSnapshot]:
        monkeypatch.setattr(streamrequest, "choose_replicas", whole)
        folder.delete_first(1)
        return whole(stores)

    monkeypatch.setattr(streamrequest, "choose_replicas", deleting_first)
    other.write()
    assert query.trigger() > 0 and query.ids == ids(*range(100))


def test_a_log_that_was_truncated_below_the_offset_fails_and_reads_nothing_again(folder: StoreFolder) -> None:
    path = folder.write()
    query = Query(path=path)
    query.run()
    cut = folder.ends[79]
    folder.write(confirm=cut)  # truncated, and the next master has not written yet
    assert query.run() == []
    folder.write(confirm=cut, epochs=((1, 0), (2, cut)))
    with pytest.raises(LogTruncated, match=rf"epoch 2 \(from {cut}\)"):
        query.trigger()
    query.restart(path=path, failOnDataLoss="false")
    with pytest.raises(LogTruncated):
        query.trigger()


def test_a_new_query_from_the_reported_intact_offset_has_the_rest_of_the_log(
    folder: StoreFolder, tmp_path: Path
) -> None:
    latest = {"endingOffsets": "latest", "allowUncommitted": "true"}
    path = folder.write(confirm=folder.ends[79])
    query = Query(path=path, **latest)
    query.run()
    other = StoreFolder(tmp_path / "other", folder.segment_bytes)
    add(other, *range(80), *range(500, 530))
    shutil.rmtree(folder.root)
    other.root = folder.root
    other.write(epochs=((1, 0), (2, other.ends[79])))
    with pytest.raises(LogTruncated) as raised:
        query.trigger()
    new = Query(path=path, startingOffsets=str(raised.value.intact), **latest)
    new.run()
    kept = [row["msg_id"] for row in query.rows if row["physical_offset"] < raised.value.intact]
    assert kept + new.ids == ids(*range(80), *range(500, 530))


def test_a_planned_batch_whose_log_was_truncated_fails(folder: StoreFolder) -> None:
    path = folder.write()
    query = Query(path=path)
    query.plan_batch()
    folder.write(epochs=((1, 0), (2, folder.ends[79])))
    query.restart(path=path)
    with pytest.raises(LogTruncated):
        query.read_batch()


def test_messages_deleted_before_the_query_read_them_are_data_loss_with_a_size(folder: StoreFolder) -> None:
    path = folder.write()
    folder.write_queues()
    query = Query(path=path, maxOffsetsPerTrigger="10")
    query.trigger()
    begin = folder.delete_first(2)
    lost = sum(folder.ends[9] < end <= begin for end in folder.ends)
    with pytest.raises(DataLost, match=rf"\[{folder.ends[9]}, {begin}\).*, {lost} messages") as raised:
        query.trigger()
    assert raised.value.end - raised.value.start == begin - folder.ends[9]


def test_without_fail_on_data_loss_a_query_continues_at_the_log_start_with_one_warning(
    folder: StoreFolder, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder.write()
    query = Query(path=path, maxOffsetsPerTrigger="10", failOnDataLoss="false")
    query.trigger()
    begin = folder.delete_first(2)
    query.run()
    rest = [number for number, end in enumerate(folder.ends) if end > begin]
    assert query.ids == ids(*range(10), *rest)
    assert caplog.text.count("was deleted before the stream read it") == 1


def test_old_files_may_be_deleted_once_they_were_read(folder: StoreFolder) -> None:
    path = folder.write(confirm=8192 + 100)
    query = Query(path=path)
    query.run()
    folder.write()
    folder.delete_first(2)
    query.run()
    assert query.ids == ids(*range(100))


def test_several_broker_sets_are_one_stream_and_another_set_may_join(tmp_path: Path) -> None:
    stores = [StoreFolder(tmp_path / name, segment_bytes=4096) for name in ("a", "b", "c")]
    paths = []
    for number, store in enumerate(stores):
        add(store, *range(number * 100, number * 100 + 50 * (number + 1)))
        paths.append(store.write())
        (store.root / "brokerIdentity").write_text(f"DefaultCluster#broker-{store.root.name}#1")
    query = Query(path=json.dumps(paths[:2]), maxOffsetsPerTrigger="60")
    query.trigger()
    query.restart(path=json.dumps(paths), maxOffsetsPerTrigger="60")
    assert max(query.run()) <= 60
    assert sorted(map(int, query.ids)) == [*range(50), *range(100, 200), *range(200, 350)]
    assert {row["broker_name"] for row in query.rows} == {"broker-a", "broker-b", "broker-c"}


def test_a_joined_set_begins_at_the_same_offset_in_a_repeated_batch(tmp_path: Path) -> None:
    one, two = StoreFolder(tmp_path / "a", 4096), StoreFolder(tmp_path / "b", 4096)
    add(one, *range(10))
    add(two, *range(100, 200))
    paths = [one.write(), two.write()]
    (two.root / "brokerIdentity").write_text("DefaultCluster#broker-b#1")
    query = Query(path=paths[0])
    query.run()
    query.restart(path=json.dumps(paths))
    query.plan_batch()
    two.delete_first(1)
    query.restart(path=json.dumps(paths))
    with pytest.raises(DataLost, match="broker-b"):
        query.read_batch()


def test_a_set_that_disappears_fails_by_name_or_keeps_its_offset(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = StoreFolder(tmp_path / "a", 4096), StoreFolder(tmp_path / "b", 4096)
    add(one, *range(10))
    add(two, *range(100, 110))
    paths = [one.write(), two.write()]
    (two.root / "brokerIdentity").write_text("DefaultCluster#broker-b#1")
    query = Query(path=json.dumps(paths))
    query.run()
    query.restart(path=paths[0])
    with pytest.raises(BrokerSetMissing, match="broker-b"):
        query.trigger()
    query.restart(path=paths[0], failOnDataLoss="false")
    add(one, 10)
    one.write()
    query.run()
    assert "broker-b" in caplog.text
    add(two, 110)
    two.write()
    (two.root / "brokerIdentity").write_text("DefaultCluster#broker-b#1")
    query.restart(path=json.dumps(paths))
    query.run()
    assert sorted(map(int, query.ids)) == [*range(11), *range(100, 111)]


def test_available_now_ends_at_the_bound_of_its_start(folder: StoreFolder) -> None:
    path = folder.write(confirm=folder.ends[59])
    query = Query(path=path, maxOffsetsPerTrigger="25", minOffsetsPerTrigger="20")
    query.reader.prepareForTriggerAvailableNow()
    folder.write()
    assert query.run() == [25, 25, 10]


def test_a_batch_below_the_least_number_waits_for_a_limited_time(folder: StoreFolder) -> None:
    path = folder.write(confirm=folder.ends[4])
    query = Query(path=path, minOffsetsPerTrigger="20", maxTriggerDelay="1h")
    assert query.trigger() == 0
    folder.write(confirm=folder.ends[18])
    assert query.trigger() == 0
    folder.write(confirm=folder.ends[20])
    assert query.trigger() == 21
    folder.write(confirm=folder.ends[21])
    assert query.trigger() == 0
    query.now_s += 3600
    assert query.trigger() == 1
    folder.write(confirm=folder.ends[22])
    assert query.trigger() == 0


def test_deleted_messages_do_not_count_towards_the_least_number(folder: StoreFolder) -> None:
    path = folder.write(confirm=folder.ends[59])
    query = Query(path=path, minOffsetsPerTrigger="61", failOnDataLoss="false")
    assert query.trigger() == 0
    folder.delete_first(1)
    folder.write(confirm=folder.ends[69])
    assert query.trigger() == 0
    folder.write()
    assert query.trigger() == sum(end > 4096 for end in folder.ends)


def test_a_batch_cut_by_its_byte_limit_does_not_wait_for_more_messages(folder: StoreFolder) -> None:
    query = Query(path=folder.write(), minOffsetsPerTrigger="90", maxBytesPerTrigger="4096")
    assert query.trigger() > 0


def test_a_query_may_begin_at_the_current_committed_bound(folder: StoreFolder) -> None:
    path = folder.write(confirm=folder.ends[59] + 3)
    query = Query(path=path, startingOffsets="latest")
    assert query.run() == []
    folder.write()
    assert query.run() == [40] and query.ids == ids(*range(60, 100))


def test_the_status_of_a_query_reports_the_bound(folder: StoreFolder) -> None:
    query = Query(path=folder.write(confirm=1234))
    assert query.reader.reportLatestOffset() == {"broker-a": 1234}


def test_a_stream_has_no_end(folder: StoreFolder) -> None:
    with pytest.raises(OptionError, match="a stream has no end"):
        Query(path=folder.write(), endingOffsets="4096")


def test_nothing_is_read_between_an_offset_and_itself(tmp_path: Path, folder: StoreFolder) -> None:
    query = Query(path=folder.write())
    query.run()
    shutil.rmtree(folder.root)
    end = json.loads(query.offsets[-1])
    assert query.reader.partitions(end, end) == []
