"""Bulk dispatch of any log writes the same bytes as dispatch one by one."""

from __future__ import annotations

import asyncio
import errno
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from messagestore import record
from messagestore.bulk.layouts import INDEX_ENTRIES, INDEX_SLOTS, QUEUE_ENTRIES
from messagestore.bulk.records import ROOM_BYTES, ROWS_MAX, Records, records_in
from messagestore.bulk.scan import plain_entries
from messagestore.bulk.texts import TEXT_BYTES_MAX, VALUE_BYTES_MAX, Texts
from messagestore.dispatch.bulkentries import BulkEntries
from messagestore.index import file as index_file
from messagestore.index.table import IndexTable
from messagestore.properties import last_value
from messagestore.queues import consumequeue
from messagestore.queues.table import QueueTable
from messagestore.record import Message, encode
from mqruntime.javahash import java_string_hash
from mqruntime.segments import RealSegmentDirectory
from tests.unit.messagestore.bulkcases import (
    V4,
    WAYS,
    Case,
    both_ways,
    dispatch,
    dispatcher_in,
    on_disk,
)

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("odd", [0.0, 0.03, 0.5])
def test_bulk_dispatch_writes_the_same_bytes(seed: int, odd: float) -> None:
    case = Case(seed, 900, odd=odd)
    limits = sorted(case.random.randrange(case.end) for _ in range(case.random.randrange(4))) + [case.end]
    reports = both_ways(case, limits, slots=case.random.choice((1, 7, 5_000)), entries=600)
    assert reports[-1][0] == case.end


@pytest.mark.parametrize("seed", range(4))
def test_bulk_dispatch_writes_the_same_bytes_with_usual_file_sizes(tmp_path: Path, seed: int) -> None:
    case = Case(seed, 9_000, odd=0.002, segment_size=1 << 20)
    both_ways(
        case,
        [case.end // 3, case.end],
        root=tmp_path,
        slots=500,
        entries=4_000,
        file_size=60_000,
        rows_min=64,
    )


@pytest.mark.parametrize("way", WAYS[1:])
def test_most_records_of_an_ordinary_log_are_dispatched_in_bulk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    case = Case(1, 9_000, odd=0.0, segment_size=4 << 20)
    dispatcher, queues, index = dispatcher_in(
        tmp_path, bulk=True, compiled=way == "compiled", slots=500, entries=40_000, rows_min=64
    )
    singles = 0
    put = dispatcher.put

    def counted(position: int, facts: record.QueueFacts) -> None:
        nonlocal singles
        singles += 1
        put(position, facts)

    monkeypatch.setattr(dispatcher, "put", counted)
    dispatch(dispatcher, case, [case.end])
    assert dispatcher.position == case.end
    assert singles < 2_000, "one step creates the queues, another one the index"
    queues.close()
    index.close()


@pytest.mark.parametrize("seed", range(30))
def test_damage_is_found_at_the_same_record_in_bulk(seed: int) -> None:
    case = Case(seed, 400, odd=0.05)
    at = case.random.randrange(case.end)
    case.log[at] ^= 1 << case.random.randrange(8)
    both_ways(case, [case.end])


@pytest.mark.parametrize("seed", range(12))
def test_a_disk_that_is_sometimes_full_changes_no_entry(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(seed, 900, odd=0.02)
    chance = random.Random(seed)
    refusing = False

    def refused(call: Callable[..., Any]) -> Callable[..., Any]:
        def tried(*args: Any, **values: Any) -> Any:
            if refusing and chance.random() < 0.3:
                raise OSError(errno.ENOSPC, "no room")
            return call(*args, **values)

        return tried

    monkeypatch.setattr("mqruntime.segments.allocate_blocks", refused(lambda *_: None))
    monkeypatch.setattr(RealSegmentDirectory, "create", refused(RealSegmentDirectory.create))
    found: list[tuple[Any, ...]] = []
    for way in WAYS:
        root = tmp_path / way
        dispatcher, queues, index = dispatcher_in(
            root, bulk=way == "in bulk", compiled=way == "compiled", slots=7, entries=300, file_size=400
        )
        refusing = way != "one by one"
        reports = dispatch(dispatcher, case, [case.end // 2, case.end], tries=10_000)
        refusing = False
        content = on_disk(root, queues, index)
        indexed = [
            content.pop(name) for name in sorted(content) if name.startswith("index")
        ]  # file names differ by time
        ends = [
            (position, timestamp, grown) for position, timestamp, _, grown in reports
        ]  # a retry reports its skip again
        found.append((ends, indexed, content))
        queues.close()
        index.close()
    assert all(other == found[0] for other in found[1:])


def held(case: Case) -> tuple[bytearray, int]:
    size = min(case.end, case.segment_size)
    return bytearray(case.log[:size]) + bytearray(ROOM_BYTES), size


def columns_of(records: Records) -> list[tuple[Any, ...]]:
    columns = records.columns
    return [
        (
            int(columns.ends[row] - columns.starts[row]), records.topic(row), int(columns.queue_ids[row]),
            int(columns.queue_offsets[row]), int(columns.sys_flags[row]), int(columns.store_timestamps[row]),
            records.properties(row),
        )
        for row in range(len(records))
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("odd", [0.0, 0.3])
def test_bulk_rows_equal_the_facts_of_single_records(seed: int, odd: float) -> None:
    case = Case(seed, 300, odd=odd, segment_size=1 << 20)
    if seed % 2:
        at = case.random.randrange(case.end)
        case.log[at] ^= 1 << case.random.randrange(8)
    buffer, size = held(case)
    rows: list[tuple[Any, ...]] = []
    at = 0
    while not isinstance(facts := record.queue_facts(buffer[:size], at, case.segment_size - at, at), int):
        rows.append(tuple(facts))
        at += facts.size
    found = columns_of(records_in(buffer, size, 0))
    if found != rows:  # records with a topic longer than brokers accept are read one by one
        assert found == rows[: len(found)] and len(rows[len(found)][1]) > record.TOPIC_BYTES_MAX


def test_a_corrupted_body_or_text_ends_the_rows() -> None:
    case = Case(3, 100, odd=0.0, segment_size=1 << 20)
    buffer, size = held(case)
    records = records_in(buffer, size, 0)
    assert records.intact_bodies() == records.without_zeros() == len(records) == 100
    full = next(
        row for row in range(40, 100) if records.columns.body_ends[row] > records.columns.body_starts[row]
    )
    buffer[int(records.columns.body_starts[full])] ^= 1
    buffer[int(records.columns.ends[70]) - 3] = 0
    buffer[int(records.columns.topic_starts[80])] = 0
    assert records.intact_bodies() == full
    assert records.without_zeros() == 70
    assert records.rows(71, 100).without_zeros() == 9


def test_the_number_of_rows_of_one_step_has_a_limit() -> None:
    case = Case(5, ROWS_MAX + 300, odd=0.0, segment_size=4 << 20)
    buffer, size = held(case)
    assert len(records_in(buffer, size, 0)) == ROWS_MAX


def test_rows_of_a_later_segment_have_its_offsets(tmp_path: Path) -> None:
    case = Case(8, 1_200, odd=0.0, segment_size=65_536)
    start = case.segment_size
    part = case.log[start : start + case.segment_size]
    records = records_in(part + bytearray(ROOM_BYTES), len(part), start)
    assert len(records) > 200 and records.physical_offsets[0] == start
    assert records.starting_below(start) == 0 and records.ending_by(records.end_offset) == len(records)
    assert records.ending_by(records.end_offset - 1) == len(records) - 1


@pytest.mark.parametrize("seed", range(10))
def test_bulk_property_values_equal_those_of_single_records(seed: int) -> None:
    case = Case(seed, 300, odd=0.6, segment_size=1 << 20)
    buffer, size = held(case)
    records = records_in(buffer, size, 0)
    texts = Texts(buffer, records.columns.topic_ends + 2, records.columns.ends)
    for name in (b"TAGS", b"UNIQ_KEY", b"KEYS", b"T"):
        values = texts.values(name)
        for row in range(len(records)):
            value = last_value(records.properties(row), name)
            if values.odd[row]:
                long = len(records.properties(row)) > TEXT_BYTES_MAX
                assert long or len(value) > VALUE_BYTES_MAX or not value.isascii()
            else:
                assert values.given[row] == bool(value) and values.sizes[row] == len(value)
                assert int(values.hashes[row]) == java_string_hash(value.decode()) & 0xFFFFFFFF


def test_numpy_layouts_equal_the_structs() -> None:
    queue_entry, index_entry = (1 << 40, 77, -5), (123, 1 << 41, 9, 8)
    assert np.frombuffer(consumequeue.ENTRY.pack(*queue_entry), QUEUE_ENTRIES)[0].tolist() == queue_entry
    assert np.frombuffer(index_file.ENTRY.pack(*index_entry), INDEX_ENTRIES)[0].tolist() == index_entry
    assert np.frombuffer(index_file.SLOT.pack(7), INDEX_SLOTS).tolist() == [7]


def test_plain_entries_end_at_the_first_invalid_one() -> None:
    def content(*entries: tuple[int, int, int]) -> bytes:
        return b"".join(consumequeue.ENTRY.pack(*entry) for entry in entries)

    good = (100, 50, 1), (150, 50, 2), (230, 20, 3)
    assert plain_entries(content(*good), 100, 250) == (3, 250)
    assert plain_entries(content(*good), 101, 250) == (0, 101)
    assert plain_entries(content(*good), 0, 249) == (2, 200)
    for bad in (
        (240, 20, 0),
        (0, 0, 0),
        (250, 0, 0),
        (-1, 20, 0),
        consumequeue.filler(250),
        consumequeue.PRE_BLANK,
    ):
        assert plain_entries(content(*good, bad, (270, 10, 0)), 0, 1_000) == (3, 250)
    assert plain_entries(b"", 7, 1_000) == (0, 7)


def test_few_or_large_records_are_not_read_in_bulk(tmp_path: Path) -> None:
    dispatcher, queues, index = dispatcher_in(tmp_path, bulk=True, rows_min=64)
    bulk = dispatcher.bulk
    assert isinstance(bulk, BulkEntries)
    case = Case(2, 200, odd=0.0, segment_size=1 << 20)
    whole = memoryview(case.log)[: case.end]
    assert bulk.records_of(whole[:0], 0) is None
    assert bulk.records_of(whole[:5_000], 0) is None
    large = Message(
        topic="T", queue_id=0, queue_offset=0, physical_offset=0, total_size=0, flag=0, sys_flag=0, body_crc=0,
        born_timestamp=0, born_host=V4, store_timestamp=0, store_host=V4, reconsume_times=0,
        prepared_transaction_offset=0, body=bytes(100_000), properties=b"",
    )  # fmt: skip
    assert bulk.records_of(memoryview(encode(large) * 100), 0) is None
    records = bulk.records_of(whole, 0)
    assert records is not None and len(records) == 200
    queues.close()
    index.close()


def test_bytes_are_read_in_place_except_their_end(tmp_path: Path) -> None:
    dispatcher, queues, index = dispatcher_in(tmp_path, bulk=True, rows_min=2)
    bulk = dispatcher.bulk
    assert isinstance(bulk, BulkEntries)
    case = Case(3, 200, odd=0.0, segment_size=1 << 20)
    whole = bytes(case.log[: case.end])
    in_place = bulk.records_of(whole, 0)
    assert (
        in_place is not None and in_place.buffer is whole and in_place.end_offset <= len(whole) - ROOM_BYTES
    )
    found = columns_of(in_place)
    copied = bulk.records_of(memoryview(whole), 0)
    assert copied is not None and len(copied) == 200
    assert found == columns_of(copied.first(len(in_place)))
    rest = bulk.records_of(whole[in_place.end_offset :], in_place.end_offset)
    assert rest is not None and rest.end_offset == case.end
    queues.close()
    index.close()


def torn(root: Path, chance: random.Random) -> None:
    """Tear the newest files: some pieces are zero or random bytes."""
    for folder in {path.parent for path in root.rglob("*") if path.is_file()}:
        path = max(path for path in folder.iterdir())
        content = bytearray(path.read_bytes())
        for _ in range(chance.randrange(3)):
            at = chance.randrange(len(content))
            size = min(chance.choice((1, 7, 20, 500)), len(content) - at)
            content[at : at + size] = chance.choice((bytes(size), chance.randbytes(size)))
        path.write_bytes(content)


@pytest.mark.parametrize("seed", range(40))
def test_torn_files_load_the_same_in_bulk_and_one_by_one(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(seed, 500, odd=seed % 4 * 0.02)
    made = tmp_path / "made"
    dispatcher, queues, index = dispatcher_in(made, bulk=True)
    dispatch(dispatcher, case, [case.end])
    on_disk(made, queues, index)
    queues.close()
    index.close()
    torn(made, case.random)
    limit = case.random.choice((case.end, case.random.randrange(case.end)))
    found = []
    for bulk in (False, True):
        monkeypatch.setattr("messagestore.queues.consumequeue.NUMPY", bulk)
        monkeypatch.setattr("messagestore.index.file.NUMPY", bulk)
        root = tmp_path / str(bulk)
        shutil.copytree(made, root)
        _, queues, index = dispatcher_in(root, bulk=bulk)

        async def load(queues: QueueTable = queues, index: IndexTable = index) -> None:
            await queues.load(0, limit, trusted=False)
            await index.load(limit, trusted=False)

        asyncio.run(load())
        ends = {
            (queue.topic, queue.queue_id): (queue.max_queue_offset, queue.phy_end) for queue in queues.all()
        }
        found.append((ends, index.phy_end, on_disk(root, queues, index)))
        queues.close()
        index.close()
    assert found[0] == found[1]


WITHOUT_NUMPY = """
import asyncio, sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] == "numpy" else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
from pathlib import Path
from tests.unit.messagestore.storehelp import dispatch_all, master, message

async def life(first):
    store = await master(Path(sys.argv[1]))
    store.append([message(properties=b"KEYS\\x01k%d\\x02" % number) for number in range(first, first + 200)])
    dispatch_all(store)
    assert store.max_queue_offset("TopicTest", 0) == first + 200
    assert len(await store.find_by_key("TopicTest", f"k{first + 7}", 9, 0, 1 << 62)) == 1
    await store.stop()
    Path(sys.argv[1], "abort").touch()

asyncio.run(life(0))
asyncio.run(life(200))
assert "numpy" not in sys.modules
"""


def test_a_store_works_without_numpy(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_NUMPY, str(tmp_path)], cwd=ROOT, check=True)
