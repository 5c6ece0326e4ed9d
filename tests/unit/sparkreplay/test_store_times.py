"""storeTimesOrdered: segments outside the times are not read, and the rows are the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sparkreplay.errors import OptionError
from sparkreplay.read.options import read_options
from sparkreplay.read.pushed import Comparison
from sparkreplay.read.reader import ReadPlan, plan_read, pruned, read_all
from sparkreplay.read.times import TimeWindow, window_of
from sparkreplay.records.rowfilter import Between, OneOfFilter
from sparkreplay.store.snapshot import open_store
from sparkreplay.stream.request import beginnings
from tests.unit.sparkreplay.storefolder import StoreFolder

SEGMENT_BYTES = 4096
COUNT = 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StoreFolder:
    """One message each ms from 1000 on, but the same time for each three."""
    made = StoreFolder(tmp_path_factory.mktemp("store"), SEGMENT_BYTES)
    for number in range(COUNT):
        made.add(body=bytes(number % 40), stored_ms=1000 + number // 3 * 3)
    made.write()
    return made


def planned(folder: StoreFolder, **options: str) -> ReadPlan:
    asked = {"path": str(folder.root), "columns": "physical_offset", **options}
    return plan_read(read_options(asked))


def offsets(read: ReadPlan) -> list[int]:
    return [offset for batch in read_all(read) for offset in batch.column(0).to_pylist()]


def segments(read: ReadPlan) -> int:
    return len({stretch.segment.name for stretch in read.stretches})


@pytest.mark.parametrize("low", [0, 1000, 1001, 1150, 1200, 1399])
@pytest.mark.parametrize("high", [None, 1000, 1003, 1151, 1400, 9000])
def test_store_times_ordered_gives_the_rows_of_a_read_without_it(
    folder: StoreFolder, low: int, high: int | None
) -> None:
    asked = {"startingTimestamp": str(low)}
    if high is not None and high >= low:
        asked["endingTimestamp"] = str(high)
    assert offsets(planned(folder, **asked, storeTimesOrdered="true")) == offsets(planned(folder, **asked))


def test_segments_outside_are_not_read(folder: StoreFolder) -> None:
    every = segments(planned(folder))
    times = {"startingTimestamp": "1200", "endingTimestamp": "1210"}
    assert every == segments(planned(folder, **times)) > 10
    assert 1 <= segments(planned(folder, **times, storeTimesOrdered="true")) <= 2
    last = planned(folder, startingTimestamp="1390", storeTimesOrdered="true")
    assert segments(last) == 1 and offsets(last)


def test_a_record_with_the_first_time_of_the_next_segment_is_kept(folder: StoreFolder) -> None:
    for at in sorted(offset for _, _, offset in folder.records)[:: COUNT // 100]:
        time = 1000 + folder.records.index(("orders", 0, at)) // 3 * 3
        asked = {"startingTimestamp": str(time), "endingTimestamp": str(time + 1)}
        assert len(offsets(planned(folder, **asked, storeTimesOrdered="true"))) in (1, 3)


def test_a_read_of_nothing_needs_no_times(folder: StoreFolder, tmp_path: Path) -> None:
    bound = str(len(folder.log))
    nothing = planned(folder, startingOffsets=bound, endingTimestamp="1200", storeTimesOrdered="true")
    assert offsets(nothing) == []
    empty = StoreFolder(tmp_path)
    empty.write()
    assert offsets(planned(empty, endingTimestamp="1200", storeTimesOrdered="true")) == []


def test_filters_that_spark_pushes_leave_segments_out_too(folder: StoreFolder) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=1390)
    pushed = [Comparison("store_timestamp", "GreaterThanOrEqual", (moment,), False)]
    left = pruned(planned(folder, storeTimesOrdered="true"), pushed)
    assert segments(left) == 1
    assert segments(pruned(planned(folder), pushed)) > 10
    assert offsets(left) == offsets(pruned(planned(folder), pushed))


def test_a_stream_begins_with_the_segment_of_its_starting_time(folder: StoreFolder) -> None:
    stores = {"broker-a": open_store(str(folder.root))}
    asked = {"path": str(folder.root), "startingTimestamp": "1390"}
    (last,) = {stretch.segment for stretch in planned(folder, **asked, storeTimesOrdered="true").stretches}
    assert beginnings(read_options(asked), stores) == {"broker-a": 0}
    assert beginnings(read_options({**asked, "storeTimesOrdered": "true"}), stores) == {
        "broker-a": last.start_offset
    }


def test_a_log_whose_segments_are_not_in_order_is_refused(tmp_path: Path) -> None:
    made = StoreFolder(tmp_path, SEGMENT_BYTES)
    for number in range(COUNT):
        made.add(stored_ms=5000 - number)
    made.write()
    with pytest.raises(
        OptionError, match="storeTimesOrdered: is not true of this log: .*leave the option out"
    ):
        planned(made, startingTimestamp="4600", storeTimesOrdered="true")
    assert planned(made, storeTimesOrdered="true").stretches  # nothing asks for a time: nothing is left out


def test_the_time_of_a_first_record_cut_by_the_bound_is_not_used(tmp_path: Path) -> None:
    made = StoreFolder(tmp_path, SEGMENT_BYTES)
    for number in range(60):
        made.add(stored_ms=1000 + number)
    begins = next(at for _, _, at in made.records if at >= SEGMENT_BYTES)
    made.log[begins + 56 : begins + 64] = bytes(8)  # its store time, not written yet
    made.write(confirm=begins + 100)
    read = planned(made, startingTimestamp="1001", storeTimesOrdered="true")
    assert offsets(read) == [at for _, _, at in made.records if 0 < at < begins]


def test_the_window_is_what_all_conditions_leave() -> None:
    field = "store_timestamp"
    assert window_of(
        [Between(field, low=3), Between(field, low=5, high=9), OneOfFilter(field, (4, 8))]
    ) == TimeWindow(5, 8)
    assert window_of([Between("queue_offset", low=3)]) == TimeWindow()
    assert window_of([OneOfFilter(field, ())]) == TimeWindow()
