"""Planning: where a log is split, and how few bytes are read to find the split points."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkreplay.errors import SeamMisplaced
from sparkreplay.read.options import read_options
from sparkreplay.read.plan import as_far_as_wanted, plan
from sparkreplay.read.reader import plan_read, read_all
from sparkreplay.records.walk import Stretch
from sparkreplay.store.files import LocalFile, LocalFiles, OpenFile
from sparkreplay.store.segments import Segment
from sparkreplay.store.snapshot import open_store
from tests.unit.sparkreplay.storefolder import StoreFolder, record

SEGMENT_BYTES = 1 << 20


@dataclass(frozen=True)
class CountingFiles(LocalFiles):
    """Counts the bytes read from open files."""

    reads: list[int] = field(default_factory=list)

    def open(self, name: str) -> OpenFile:
        return CountingFile(self.shown(name), self.reads)


class CountingFile(LocalFile):
    def __init__(self, path: str, reads: list[int]) -> None:
        super().__init__(path)
        self.reads = reads

    def read_into(self, view: memoryview, at: int) -> int:
        self.reads.append(len(view))
        return super().read_into(view, at)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StoreFolder:
    made = StoreFolder(tmp_path_factory.mktemp("store"), SEGMENT_BYTES)
    for number in range(2500):
        made.add(body=os.urandom(1 + number * 37 % 3000))
    made.write()
    return made


def test_little_of_a_log_is_read_to_plan_it(folder: StoreFolder) -> None:
    store = open_store(str(folder.root))
    counting = CountingFiles(store.root)
    stretches = plan(replace(store, files=counting), 0, store.bound, 128 << 10)
    seams = len(stretches) - len(store.segments)
    assert seams > 20
    assert sum(counting.reads) <= seams * (64 << 10) + 8 * len(counting.reads)
    assert len(counting.reads) <= 2 * seams, (
        "a window, and the head of the record behind the one that was found"
    )


def test_splits_are_contiguous_and_begin_at_records(folder: StoreFolder) -> None:
    store = open_store(str(folder.root))
    begins = {0, *folder.ends} | {segment.start_offset for segment in store.segments}
    for split_bytes in (4096, 50_000, 300_000, 1 << 30):
        stretches = plan(store, 0, store.bound, split_bytes)
        assert [stretch.start for stretch in stretches[1:]] == [stretch.end for stretch in stretches[:-1]]
        assert {stretch.start for stretch in stretches} <= begins
        assert [stretch.at_bound for stretch in stretches] == [False] * (len(stretches) - 1) + [True]
        size = split_bytes + 3200
        assert all(stretch.end - stretch.start <= size for stretch in stretches)


def test_split_points_are_found_behind_a_record_longer_than_a_window(tmp_path: Path) -> None:
    made = StoreFolder(tmp_path, 8 << 20)
    for size in (3_000_000, 10, 2_000_000, 10):
        made.add(body=bytes(size))
    read = plan_read(read_options({"path": made.write(), "splitBytes": "64k", "columns": "physical_offset"}))
    assert [stretch.start for stretch in read.stretches[1:]] == [made.ends[0], made.ends[2]]
    assert sum(batch.num_rows for batch in read_all(read)) == 4


def test_forged_records_add_no_rows_and_planning_ends(tmp_path: Path) -> None:
    made = StoreFolder(tmp_path, SEGMENT_BYTES)
    while len(made.log) < 900_000:
        body_at = len(made.log) + 88
        made.add(body=b"".join(record(body_at + 92 * place, topic="t", body=b"") for place in range(400)))
    store = open_store(made.write())
    counting = CountingFiles(store.root)
    plan(replace(store, files=counting), 0, store.bound, 64 << 10)
    assert sum(counting.reads) < 2 * store.bound
    options = {"path": store.root, "columns": "topic"}
    with pytest.raises(SeamMisplaced, match="splitBytes as large as a segment"):
        list(read_all(plan_read(read_options({**options, "splitBytes": "64k"}))))
    whole = plan_read(read_options({**options, "splitBytes": "1m"}))
    topics = [topic for batch in read_all(whole) for topic in batch.column(0).to_pylist()]
    assert topics == ["orders"] * len(made.ends)


def stretch(segment: int, start: int) -> Stretch:
    return Stretch(Segment(f"commitlog/{segment:020d}", "", segment, 100), start, start + 10)


@settings(max_examples=100)
@given(st.sets(st.integers(0, 29)))
def test_a_segment_keeps_all_splits_up_to_the_last_one_needed(wanted: set[int]) -> None:
    stretches = [stretch(number // 10 * 100, number * 10) for number in range(30)]
    kept = {one.start // 10 for one in as_far_as_wanted(stretches, lambda one: one.start // 10 in wanted)}
    last = {number // 10: number for number in sorted(wanted)}
    assert kept == {number for number in range(30) if number <= last.get(number // 10, -1)}


def test_the_size_of_a_task_does_not_grow_with_the_log(folder: StoreFolder) -> None:
    pytest.importorskip("pyspark")
    from sparkreplay.source.datasource import RocketMQReader

    sizes = []
    for split in ("4096", "1g"):
        reader = RocketMQReader(read_options({"path": str(folder.root), "splitBytes": split}))
        sizes.append(len(pickle.dumps(reader)))
    assert sizes[0] == sizes[1]
