"""The schedule of log slices to scrub, the unchecked ranges, and the check of one slice."""

from __future__ import annotations

from messagestore.record import encode
from messagestore.scrub.schedule import RECORD_COST_BYTES, RETRY_MS, BeginPass, ScrubSchedule, ScrubSlice
from messagestore.scrub.unchecked import Range, Unchecked
from messagestore.scrub.walk import walk_slice
from mqruntime.core import NEVER_MS
from tests.unit.messagestore.storehelp import worked


def test_a_scrub_pass_keeps_its_rate_and_repeats_after_the_interval() -> None:
    schedule = ScrubSchedule(bytes_per_second=1_000_000, interval_ms=60_000, now_ms=5)
    assert schedule.tick(5) == [BeginPass(again=False)]
    assert schedule.tick(6) == []
    schedule.begun(0, 2_000_000, 7)
    assert schedule.tick(7) == [ScrubSlice(0, 2_000_000)]
    schedule.scrubbed(500_000, 500_000, 0, 8)
    assert schedule.next_tick_ms == 508
    assert schedule.tick(507) == []
    assert schedule.tick(508) == [ScrubSlice(500_000, 2_000_000)]
    schedule.scrubbed(2_000_000, 1_500_000, 0, 600)
    assert (schedule.passes, schedule.next_tick_ms) == (1, 60_600)
    assert schedule.tick(60_600) == [BeginPass(again=True)]


def test_small_records_cost_more_scrub_time_than_their_bytes() -> None:
    schedule = ScrubSchedule(bytes_per_second=1_000 * RECORD_COST_BYTES, interval_ms=1, now_ms=0)
    schedule.tick(0)
    schedule.begun(0, 10_000, 0)
    schedule.tick(0)
    schedule.scrubbed(9_000, 0, 500, 0)
    assert schedule.next_tick_ms == 500


def test_a_slice_that_the_disk_fails_to_read_is_retried() -> None:
    schedule = ScrubSchedule(bytes_per_second=1, interval_ms=1, now_ms=0)
    schedule.tick(0)
    schedule.begun(0, 10, 0)
    schedule.tick(0)
    schedule.failed(3)
    assert schedule.tick(3 + RETRY_MS) == [ScrubSlice(0, 10)]


def test_a_rate_of_0_disables_the_scrub() -> None:
    assert ScrubSchedule(bytes_per_second=0, interval_ms=1, now_ms=0).next_tick_ms == NEVER_MS


def test_ranges_are_cut_split_and_joined() -> None:
    unchecked = Unchecked()
    unchecked.add(0, 100)
    unchecked.checked(20, 30)
    assert unchecked.ranges == (Range(0, 20), Range(30, 100))
    assert unchecked.first(20, 30) is None
    assert unchecked.first(25, 31) == (30, Range(30, 100))
    assert unchecked.first(10, 31) == (10, Range(0, 20))
    unchecked.cut(40)
    assert unchecked.size_bytes == 30
    unchecked.add(10, 35)
    assert unchecked.ranges == (Range(0, 10), Range(10, 35), Range(35, 40))
    unchecked.checked(0, 1000)
    assert unchecked.ranges == ()


def test_a_walk_ends_at_the_end_of_the_slice_the_limit_or_damage() -> None:
    record = encode(worked())
    start, size, segment_end = worked().physical_offset, len(record), worked().physical_offset + 4096
    assert walk_slice(record, start, segment_end, start + size) == (start + size, 1, "", 0, 0)
    assert walk_slice(record[:-1], start, segment_end, segment_end) == (start, 0, "", 0, size)
    assert "goes beyond" in walk_slice(record[:-1], start, segment_end, start + size - 1).why
    assert "goes beyond" in walk_slice(record[:3], start, segment_end, start + 3).why
    corrupted = bytearray(record)
    corrupted[90] ^= 1
    assert walk_slice(corrupted, start, segment_end, segment_end)[:4] == (
        start,
        0,
        "the body has another CRC",
        size,
    )
    assert walk_slice(bytes(200), start, segment_end, segment_end)[:2] == (start, 0)
    assert walk_slice(b"", segment_end - 4, segment_end, segment_end).end == segment_end
