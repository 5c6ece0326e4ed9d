"""A request gives the same rows as the same filter on all rows."""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkreplay.errors import EpochChanged, MessagesGone, OptionError, SegmentGone
from sparkreplay.read.options import read_options
from sparkreplay.read.reader import ReadPlan, open_stores, plan_read, read_all
from sparkreplay.stream.request import beginning
from tests.unit.sparkreplay.storefolder import StoreFolder

SEGMENT_BYTES = 8192
TOPICS = ("orders", "payments", "refunds")
Row = dict[str, Any]


def made_store(root: Path, count: int = 240, broker: str = "broker-a") -> str:
    """240 messages in three topics of two queues, 10 ms apart; each four have the same time."""
    store = StoreFolder(root, SEGMENT_BYTES)
    for number in range(count):
        store.add(
            topic=TOPICS[number % 3],
            queue_id=number // 3 % 2,
            body=bytes(number % 50),
            stored_ms=1000 + number // 4 * 10,
        )
    path = store.write()
    (root / "brokerIdentity").write_text(f"DefaultCluster#{broker}#1")
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made_store(tmp_path_factory.mktemp("store"))


def planned(path: str, **options: str) -> ReadPlan:
    return plan_read(read_options({"path": path, "columns": "full", **options}))


def rows_of(path: str, **options: str) -> list[Row]:
    read = planned(path, **options)
    return [row for batch in read_all(read) for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def everything(path: str) -> list[Row]:
    return rows_of(path)


def places(rows: list[Row]) -> list[int]:
    return [row["physical_offset"] for row in rows]


def stored_ms(row: Row) -> int:
    return round(row["store_timestamp"].timestamp() * 1000)


def queue(row: Row) -> tuple[str, int]:
    return row["topic"], row["queue_id"]


def offsets(limits: dict[tuple[str, int], int]) -> str:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, queue_id), value in limits.items():
        by_topic.setdefault(topic, {})[str(queue_id)] = value
    return json.dumps(by_topic)


QUEUES = [(topic, queue_id) for topic in TOPICS for queue_id in (0, 1)]
LIMITS = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 40), min_size=1)
TIMES = st.dictionaries(st.sampled_from(QUEUES), st.integers(900, 1560), min_size=1)


@settings(max_examples=60)
@given(start=LIMITS, end=LIMITS, split=st.sampled_from(["4096", "1g"]))
def test_offsets_per_queue_are_half_open_ranges_of_it(
    path: str,
    everything: list[Row],
    start: dict[tuple[str, int], int],
    end: dict[tuple[str, int], int],
    split: str,
) -> None:
    end = {key: max(value, start.get(key, 0)) for key, value in end.items()}
    rows = rows_of(path, startingOffsets=offsets(start), endingOffsets=offsets(end), splitBytes=split)
    assert places(rows) == places(
        [
            row
            for row in everything
            if start.get(queue(row), 0) <= row["queue_offset"] < end.get(queue(row), 1 << 60)
        ]
    )


@settings(max_examples=60)
@given(start=TIMES, end=TIMES)
def test_times_per_queue_are_half_open_ranges_of_store_times(
    path: str, everything: list[Row], start: dict[tuple[str, int], int], end: dict[tuple[str, int], int]
) -> None:
    rows = rows_of(path, startingOffsetsByTimestamp=offsets(start), endingOffsetsByTimestamp=offsets(end))
    assert places(rows) == places(
        [
            row
            for row in everything
            if start.get(queue(row), 0) <= stored_ms(row) < end.get(queue(row), 1 << 60)
        ]
    )


@settings(max_examples=30)
@given(start=st.integers(0, 1590), length=st.integers(0, 700))
def test_a_single_time_applies_to_every_queue(
    path: str, everything: list[Row], start: int, length: int
) -> None:
    rows = rows_of(path, startingTimestamp=str(start), endingTimestamp=str(start + length))
    assert places(rows) == places([row for row in everything if start <= stored_ms(row) < start + length])


def test_time_ranges_select_rows_although_the_clock_went_back(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path, SEGMENT_BYTES)
    for stored in (100, 300, 200, 400):
        store.add(stored_ms=stored)
    rows = rows_of(store.write(), startingTimestamp="250", endingTimestamp="400")
    assert [stored_ms(row) for row in rows] == [300]


def test_a_start_by_time_is_the_offset_of_upstreams_search_by_time(path: str, everything: list[Row]) -> None:
    for when in (0, 1000, 1001, 1035, 1590):
        rows = rows_of(path, startingOffsetsByTimestamp=offsets(dict.fromkeys(QUEUES, when)), **LATEST)
        for wanted in QUEUES:
            mine = [row["queue_offset"] for row in everything if queue(row) == wanted]
            times = [stored_ms(row) for row in everything if queue(row) == wanted]
            found = next((place for place, at in enumerate(times) if at >= when), len(mine))
            assert [row["queue_offset"] for row in rows if queue(row) == wanted] == mine[found:]


def test_a_time_reached_only_before_the_clock_went_back_is_found(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path, SEGMENT_BYTES)
    for stored in (100, 300, 200):
        store.add(stored_ms=stored, body=bytes(5000))
    path = store.write()
    assert [stored_ms(row) for row in rows_of(path, startingTimestamp="250")] == [300]
    assert [stored_ms(row) for row in rows_of(path, startingOffsetsByTimestamp='{"orders": {"0": 300}}')] == [
        300
    ]
    with pytest.raises(OptionError, match="at 301 or later, the newest record at 300"):
        rows_of(path, startingTimestamp="301")


UNKNOWN = {"failOnMissingTopic": "false"}
LATEST = {"startingOffsetsByTimestampStrategy": "latest"}


def test_a_time_after_the_last_message_is_an_error_unless_the_strategy_is_latest(path: str) -> None:
    assert places(rows_of(path, startingTimestamp="1590"))
    with pytest.raises(OptionError, match="option startingTimestamp: nothing in .* 1591 or later"):
        rows_of(path, startingTimestamp="1591")
    assert rows_of(path, startingTimestamp="1591", **LATEST) == []
    late = offsets({("orders", 0): 1591})
    with pytest.raises(OptionError, match="nothing of queue orders/0"):
        rows_of(path, startingOffsetsByTimestamp=late)
    with pytest.raises(OptionError, match="nothing of queue strange/7"):
        rows_of(path, startingOffsetsByTimestamp='{"strange": {"7": 0}}', **UNKNOWN)
    rows = rows_of(path, startingOffsetsByTimestamp=late, **LATEST)
    assert {queue(row) for row in rows} == set(QUEUES) - {("orders", 0)}


@pytest.mark.parametrize("pattern", ["orders", "o.*", ".*", "order", "(pay|ref).*", "[^o].*s"])
def test_a_pattern_matches_whole_topics(path: str, pattern: str) -> None:
    rows = rows_of(path, topicPattern=pattern)
    assert {row["topic"] for row in rows} == {topic for topic in TOPICS if re.fullmatch(pattern, topic)}


def test_a_pattern_finds_system_topics_only_with_include_system_topics(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path, SEGMENT_BYTES)
    store.add(topic="SCHEDULE_TOPIC_XXXX")
    store.add(topic="SCHEDULE_other")
    made = store.write()
    assert [row["topic"] for row in rows_of(made, topicPattern="SCHEDULE.*")] == ["SCHEDULE_other"]
    assert len(rows_of(made, topicPattern="SCHEDULE.*", includeSystemTopics="true")) == 2
    assert len(rows_of(made, topic="SCHEDULE_TOPIC_XXXX")) == 1


def test_physical_offsets_cut_the_log_where_records_begin(path: str) -> None:
    everything = places(rows_of(path))
    start, end = everything[31], everything[200]
    assert places(rows_of(path, startingOffsets=str(start), endingOffsets=str(end))) == everything[31:200]
    assert places(rows_of(path, endingOffsets=str(end + 1))) == everything[:200], "a cut record is no row"
    with pytest.raises(OptionError, match=f"no record begins at {start + 1}"):
        rows_of(path, startingOffsets=str(start + 1))
    with pytest.raises(OptionError, match="above the end of the read"):
        rows_of(path, startingOffsets=str(end), endingOffsets=str(start))


def test_a_read_may_begin_at_the_end_of_any_row(tmp_path: Path) -> None:
    path = made_store(tmp_path)
    rows = rows_of(path)
    for place, row in enumerate(rows, start=1):  # no record follows the last one of a segment or of the log
        end = row["physical_offset"] + row["store_size"]
        assert places(rows_of(path, startingOffsets=str(end))) == places(rows[place:])


@pytest.mark.parametrize("left", [1, 7])
def test_a_start_too_near_the_end_of_a_segment_is_refused(path: str, left: int) -> None:
    with pytest.raises(OptionError, match=f"no record begins at {SEGMENT_BYTES - left}"):
        rows_of(path, startingOffsets=str(SEGMENT_BYTES - left))


def test_a_read_may_begin_at_the_last_record_before_bytes_of_an_old_truncation(
    tmp_path: Path,
) -> None:
    store = StoreFolder(tmp_path, SEGMENT_BYTES)
    last = [store.add() for _ in range(3)][-1]
    end = len(store.log)
    store.log += b"\xff" * 100
    path = store.write(confirm=end)
    assert places(rows_of(path, startingOffsets=str(last))) == [last]
    assert rows_of(path, startingOffsets=str(end)) == []


def test_a_stream_begins_at_the_bound_with_the_first_record_that_it_cuts(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path, SEGMENT_BYTES)
    last = [store.add() for _ in range(3)][-1]
    for bound in (last + 20, len(store.log)):
        options = read_options({"path": store.write(confirm=bound), "startingOffsets": str(bound)})
        (opened,) = open_stores(options)
        assert beginning(options, opened) == (last if bound < len(store.log) else bound)


def test_min_partitions_makes_smaller_ones(path: str) -> None:
    few, many = planned(path), planned(path, minPartitions="7")
    assert len(few.stretches) == 4 and len(many.stretches) >= 7
    assert [row for batch in read_all(many) for row in batch.to_pylist()] == rows_of(path)


def test_uncommitted_rows_need_two_options(tmp_path: Path) -> None:
    store = StoreFolder(tmp_path, SEGMENT_BYTES)
    for _ in range(4):
        store.add()
    made = store.write(confirm=store.ends[1])
    assert len(rows_of(made)) == len(rows_of(made, allowUncommitted="true")) == 2
    with pytest.raises(OptionError, match="allowUncommitted=true"):
        rows_of(made, endingOffsets="latest")
    assert len(rows_of(made, endingOffsets="latest", allowUncommitted="true")) == 4


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"topic": "orders", "queues": "1"},
        {"topicPattern": ".*s", "startingTimestamp": "1200", "endingTimestamp": "1400"},
        {"startingOffsets": '{"orders": {"0": 7}, "refunds": {"1": 25}}', "queues": "0,1"},
        {"includeSystemTopics": "true", "columns": "topic,epoch,body"},
    ],
)
@pytest.mark.parametrize("cut", [0, 500])
def test_rows_found_through_the_consume_queues_are_those_of_a_walk(
    tmp_path: Path, options: dict[str, str], cut: int
) -> None:
    store = StoreFolder(tmp_path, SEGMENT_BYTES)
    for number in range(240):
        store.add(
            topic=(*TOPICS, "SCHEDULE_TOPIC_XXXX")[number % 4],
            queue_id=number // 4 % 2,
            stored_ms=1000 + 3 * number,
        )
    made = store.write(confirm=len(store.log) - cut)
    store.write_queues()
    for split in ("4096", "1g"):
        rows = rows_of(made, splitBytes=split, index="consumequeue", **options)
        assert rows == rows_of(made, **options) != []


# Deleted messages


@pytest.fixture
def shortened(tmp_path: Path) -> str:
    """A log whose first segment retention deleted."""
    made = made_store(tmp_path)
    os.remove(tmp_path / "commitlog" / f"{0:020d}")
    return made


def first_left(path: str, wanted: tuple[str, int]) -> int:
    return int(next(row["queue_offset"] for row in rows_of(path) if queue(row) == wanted))


def test_earliest_is_the_first_record_kept_by_retention(shortened: str) -> None:
    first = first_left(shortened, ("orders", 0))
    assert first > 0
    rows = rows_of(shortened, startingOffsets='{"orders": {"0": -2}}')
    assert rows == rows_of(shortened)
    assert rows_of(shortened, startingOffsets=offsets({("orders", 0): first})) == rows


ALL, NONE = set(QUEUES), set[tuple[str, int]]()


@pytest.mark.parametrize(
    ("options", "why", "left"),
    [
        ({"startingOffsets": "0"}, "offset 0 was deleted, the log begins at 8192", ALL),
        ({"endingOffsets": "100"}, "all below 100 was deleted", NONE),
        (
            {"startingOffsets": '{"orders": {"0": 2}}'},
            r"offsets 2 to \d+ of queue orders/0 were deleted",
            ALL,
        ),
        ({"startingOffsets": '{"strange": {"7": 0}}', **UNKNOWN}, "holds nothing of queue strange/7", ALL),
        ({"startingOffsets": '{"orders": {"0": 41}}'}, "orders/0 ends at 40, before", ALL - {("orders", 0)}),
        ({"endingOffsets": '{"orders": {"1": 41}}'}, "queue orders/1 ends at 40, before offset 41", ALL),
    ],
)
def test_deleted_messages_fail_the_read_or_are_logged(
    shortened: str,
    options: dict[str, str],
    why: str,
    left: set[tuple[str, int]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(MessagesGone, match=why):
        rows_of(shortened, **options)
    with caplog.at_level(logging.WARNING, "sparkreplay"):
        rows = rows_of(shortened, failOnDataLoss="false", **options)
    assert re.search(why, caplog.text)
    assert rows == [row for row in rows_of(shortened) if queue(row) in left]


def test_the_end_of_a_queue_is_a_start_that_exists(path: str) -> None:
    rows = rows_of(path, topic="orders", startingOffsets='{"orders": {"0": 40, "1": 39}}')
    assert [row["queue_offset"] for row in rows] == [39]


@pytest.mark.parametrize("begin", [160, 240])
def test_a_queue_range_may_end_before_the_physical_start_of_a_read(tmp_path: Path, begin: int) -> None:
    store = StoreFolder(tmp_path, SEGMENT_BYTES)
    for number in range(240):
        store.add(topic="orders" if number < 80 else "payments")
    path = store.write()
    start = ([0, *store.ends])[begin]
    rows = rows_of(path, startingOffsets=str(start), endingOffsets='{"orders": {"0": 80}}')
    assert len(rows) == 240 - begin
    with pytest.raises(MessagesGone, match="orders/0 ends at 80, before offset 81"):
        rows_of(path, startingOffsets=str(start), endingOffsets='{"orders": {"0": 81}}')


def test_a_complete_log_proves_that_an_unknown_queue_is_empty(path: str) -> None:
    assert rows_of(path, startingOffsets='{"strange": {"7": 0}}', **UNKNOWN) == rows_of(path)
    with pytest.raises(MessagesGone, match="strange/7 ends at 0"):
        rows_of(path, startingOffsets='{"strange": {"7": 1}}', **UNKNOWN)


def test_an_end_before_its_start_is_a_contradiction(path: str) -> None:
    with pytest.raises(OptionError, match="orders/0 ends at 3, before it starts, at 4"):
        rows_of(path, startingOffsets='{"orders": {"0": 4}}', endingOffsets='{"orders": {"0": 3}}')


def test_a_segment_deleted_after_planning_fails_or_leaves_out_its_partition_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = made_store(tmp_path)
    left = [place for place in places(rows_of(made)) if place >= SEGMENT_BYTES]
    strict, lenient = planned(made), planned(made, failOnDataLoss="false")
    os.remove(tmp_path / "commitlog" / f"{0:020d}")
    with pytest.raises(SegmentGone, match="run the job again"):
        list(read_all(strict))
    with caplog.at_level(logging.WARNING, "sparkreplay"):
        rows = [row for batch in read_all(lenient) for row in batch.to_pylist()]
    assert places(rows) == left
    assert f"[0, {SEGMENT_BYTES}) is left out" in caplog.text


def test_a_truncation_fails_a_read_with_fail_on_data_loss_off_too(tmp_path: Path) -> None:
    made = made_store(tmp_path)
    read = planned(made, failOnDataLoss="false")
    StoreFolder(tmp_path).write_epochs(((1, 0), (2, 100)))
    with pytest.raises(EpochChanged):
        list(read_all(read))


# Several broker sets


@pytest.fixture
def two_sets(tmp_path: Path) -> str:
    return json.dumps([made_store(tmp_path / "a", 60), made_store(tmp_path / "b", 90, broker="broker-b")])


def test_several_broker_sets_are_one_frame_and_each_keeps_its_order(two_sets: str) -> None:
    rows = rows_of(two_sets, splitBytes="4096")
    for broker, count in (("broker-a", 60), ("broker-b", 90)):
        mine = [row for row in rows if row["broker_name"] == broker]
        assert len(mine) == count and places(mine) == sorted(places(mine))


def test_offsets_of_several_broker_sets_name_the_set(two_sets: str) -> None:
    with pytest.raises(OptionError, match="name the broker set"):
        rows_of(two_sets, startingOffsets='{"orders": {"0": 3}}')
    with pytest.raises(OptionError, match="those of path are broker-a, broker-b"):
        rows_of(two_sets, startingOffsets='{"orders": {"broker-c": {"0": 3}}}')
    given = '{"orders": {"broker-b": {"0": 14}, "broker-a": {"0": -2}}}'
    rows = rows_of(two_sets, topic="orders", queues="0", startingOffsets=given)
    found = {
        name: [row["queue_offset"] for row in rows if row["broker_name"] == name]
        for name in ("broker-a", "broker-b")
    }
    assert found == {"broker-a": list(range(10)), "broker-b": [14]}


def test_replicas_of_one_broker_set_are_read_once(tmp_path: Path) -> None:
    paths = [made_store(tmp_path / name) for name in ("one", "other")]
    assert len(rows_of(json.dumps(paths))) == 240


def test_a_source_may_be_restarted_at_the_end_of_the_last_read(path: str) -> None:
    everything = rows_of(path)
    end = str(planned(path, endingOffsets=str(everything[99]["physical_offset"])).sources[0].end)
    assert rows_of(path, endingOffsets=end) + rows_of(path, startingOffsets=end) == everything
