"""The memory of an export is limited for any topics, days and sizes: counted in bytes."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkreplay.export import partfiles
from sparkreplay.export.partfiles import CountedFile, PartFiles
from sparkreplay.export.partitions import DAY_US
from sparkreplay.export.window import WriteWindow
from sparkreplay.records.schema import TIMESTAMP

MIB = 1 << 20
TOPICS, DAYS = 32, 10
COLUMNS = ("physical_offset", "body", "store_timestamp")
BATCH_ROWS = 128
SLACK_BYTES = 64 << 10
"""Buffers are rounded up."""


def batches(log_bytes: int, body_bytes: int = 1000) -> Iterator[pa.RecordBatch]:
    """All topics in turn, the days one after the other; each batch is ordered by partition."""
    rows = log_bytes // body_bytes
    for start in range(0, rows, BATCH_ROWS):
        numbers = range(start, min(start + BATCH_ROWS, rows))
        made = pa.RecordBatch.from_arrays(
            [
                pa.array([f"topic-{number % TOPICS:02}" for number in numbers]),
                pa.array([number * DAYS // rows * DAY_US for number in numbers], TIMESTAMP),
                pa.array([number * body_bytes for number in numbers], pa.int64()),
                pa.array([number.to_bytes(8, "big") * (body_bytes // 8) for number in numbers]),
            ],
            ["topic", "store_timestamp", "physical_offset", "body"],
        )
        yield made.sort_by([("topic", "ascending"), ("store_timestamp", "ascending")])


def part_files(folder: Path, window: WriteWindow) -> PartFiles:
    folder.mkdir()
    return PartFiles(folder, "part", "broker-a", COLUMNS, window)


@pytest.mark.parametrize("bytes_max", [0, 100_000, 1_000_000])
def test_rows_that_wait_are_never_more_than_the_window_or_one_batch(bytes_max: int) -> None:
    window = WriteWindow(bytes_max)
    rows = 0
    for batch in batches(4 * MIB):
        for _, table in window.add(batch):
            rows += table.num_rows
        kept = {
            buffer.address: buffer.size
            for parts in window.waiting.values()
            for part in parts
            for column in part.columns
            for buffer in column.buffers()
            if buffer is not None
        }
        assert sum(kept.values()) <= window.bytes + SLACK_BYTES
        assert window.bytes <= max(bytes_max, batch.nbytes)
    rows += sum(table.num_rows for _, table in window.rest())
    assert rows == 4 * MIB // 1000 and window.bytes == 0 and not window.waiting


def test_an_export_of_many_topics_and_days_holds_no_more_when_the_log_is_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partfiles, "OPEN_BYTES_MAX", MIB)
    held: list[int] = []

    class Watched(CountedFile):
        def write(self, data: Any) -> int:
            held.append(pa.total_allocated_bytes())
            return super().write(data)

    monkeypatch.setattr(partfiles, "CountedFile", Watched)
    most = []
    for log_bytes in (4 * MIB, 12 * MIB):
        before = pa.total_allocated_bytes()
        held.clear()
        files = part_files(tmp_path / str(log_bytes), WriteWindow(MIB))
        for batch in batches(log_bytes):
            files.add(batch)
        parts = files.finish()
        assert sum(part.rows for _, part in parts) == log_bytes // 1000
        most.append(max(held) - before)
    assert MIB // 2 < most[0] < 3 * MIB
    assert most[1] < most[0] + MIB // 2


def test_open_files_that_hold_too_much_are_finished_the_fullest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 40 * len(COLUMNS) * partfiles.ENCODER_BYTES
    monkeypatch.setattr(partfiles, "OPEN_BYTES_MAX", limit)
    files = part_files(tmp_path / "parts", WriteWindow(300_000))
    for batch in batches(8 * MIB):
        files.add(batch)
        held = sum(file.held_bytes for file in files.open.values())
        most = max((file.held_bytes for file in files.open.values()), default=0)
        assert held == files.held_bytes <= limit + most + len(COLUMNS) * partfiles.GROUP_BYTES
    places = files.finish()
    assert files.held_bytes == 0 and len(places) > TOPICS * DAYS
    offsets: list[int] = []
    for place, part in places:
        found = pq.read_table(place, partitioning=None).column("physical_offset").to_pylist()
        assert found == sorted(found)
        assert (part.rows, part.first_offset, part.last_offset) == (len(found), found[0], found[-1])
        offsets += found
    assert sorted(offsets) == [number * 1000 for number in range(8 * MIB // 1000)]
    names = [part.file for _, part in places]
    assert len(set(names)) == len(names)


def test_a_full_disk_is_reported_once_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    files = part_files(tmp_path / "parts", WriteWindow(100_000))

    class FullDisk:
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            """As files do."""

    for number, batch in enumerate(batches(MIB)):
        if number == 3:
            for file in files.open.values():
                file.sink.file.close()
                monkeypatch.setattr(file.sink, "file", FullDisk())
            with pytest.raises(OSError, match="No space left") as caught:
                files.finish()
            break
        files.add(batch)
    assert str(caught.value.filename).startswith(str(tmp_path / "parts"))
    files.abandon()
    del files, caught
    assert not unraisable
