"""Records in bulk leave the bytes that they leave one by one, whatever stands in the log."""

from __future__ import annotations

import asyncio
import errno
import random
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
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
from messagestore.dispatch.dispatcher import KNOWN_MAX, Dispatcher
from messagestore.errors import StoreCorrupted
from messagestore.index import file as index_file
from messagestore.index.table import IndexTable
from messagestore.properties import java_string_hash, last_value
from messagestore.queues import consumequeue
from messagestore.queues.table import QueueTable
from messagestore.record import Message, encode, encode_blank, pack_host
from messagestore.systemtopics import SCHEDULE_TOPIC
from mqruntime.segments import RealSegmentDirectory, SegmentDirectory
from nativepath import presence
from simulation.kernel.world import World

ROOT = Path(__file__).parents[3]
LEVELS = "1s 5s 10s 30s 1m"
NOW_MS = 1_700_000_000_000
V4, V6 = pack_host("10.0.0.9", 5000), pack_host("fe80::1", 5000)
TOPICS = (
    "TopicA",
    "TopicA",
    "TopicB",
    "topic-of-more-than-eight-bytes",
    "schl\u00fcssel",
    "L" * 140,
    SCHEDULE_TOPIC,
)
VALUES = (
    "",
    "a",
    "TagA",
    "TagB",
    "0A0102030A5C18B4AAC2000000000001",
    "schl\u00fcssel",
    "\U0001f511",
    "x" * 200,
)
KEYS = (*VALUES, "k1", "k2", "k1 k2", " k1  k3 ", "   ", "many " * 20)
NAMES = ("TAGS", "KEYS", "UNIQ_KEY", "DELAY", "WAIT", "XTAGS", "TAGSX", "UNIQ_KEYS", "UNIQ_KE", "T")
JUNK = ("", "TAGS", "\x01", "TAGS\x01", "\x01x", "KEYS\x01\x01", "UNIQ_KEY", "UNIQ_KEYxabc")


class Case:
    """A log drawn from a seed: `segments` of equal size, and where it ends."""

    def __init__(self, seed: int, count: int, *, odd: float, segment_size: int = 65_536) -> None:
        self.random = random.Random(seed)
        self.segment_size = segment_size
        self.odd = odd  # how often something is not as usual
        self.log = bytearray()
        self.next_offsets: dict[tuple[str, int], int] = {}
        for number in range(count):
            self.add(number)
        self.end = len(self.log)
        self.log += bytes(-len(self.log) % segment_size)

    def rarely(self) -> bool:
        return self.random.random() < self.odd

    def properties(self, number: int) -> bytes:
        if not self.rarely():
            text = f"UNIQ_KEY\x01U{number:08d}\x02KEYS\x01k{number % 7}\x02TAGS\x01Tag{number % 3}\x02WAIT\x01true\x02"
            return text.encode()
        pieces = []
        for _ in range(self.random.randrange(7)):
            name = self.random.choice(NAMES)
            value = self.random.choice(KEYS if name == "KEYS" else VALUES)
            if name == "DELAY":
                value = self.random.choice(("0", "1", "3", "99", "-1", "x"))
            pieces.append(f"{name}\x01{value}" if self.random.random() < 0.9 else self.random.choice(JUNK))
        if self.rarely():
            pieces.append("LONG\x01" + "y" * self.random.choice((300, TEXT_BYTES_MAX, 2_000)))
            self.random.shuffle(pieces)
        text = "\x02".join(pieces) + self.random.choice(("", "\x02"))
        raw = text.encode()
        return raw + b"\xff\x02TAGS\x01\xfe\x02" if self.rarely() else raw

    def add(self, number: int) -> None:
        topic = self.random.choice(TOPICS if self.rarely() else TOPICS[:3])
        queue_id = self.random.randrange(3)
        state = self.random.choice((0, 4, 8, 12)) if self.rarely() else 0
        due = self.next_offsets.get((topic, queue_id), 0)
        if state in (0, 8):
            if self.random.random() < self.odd / 8:
                due = max(0, due + self.random.choice((-2, -1, 1, 3, 200)))
            self.next_offsets[topic, queue_id] = due + 1
        else:
            due = 0
        ipv6 = self.random.choice((0, 0x10, 0x20, 0x30)) if self.rarely() else 0
        body = bytes(self.random.randrange(60))
        if self.rarely():  # a body that looks like a record, or is empty
            body = self.random.choice((b"", bytes(self.log[-300:])))
        message = Message(
            topic=topic, queue_id=queue_id, queue_offset=due, physical_offset=0, total_size=0, flag=number,
            sys_flag=state | ipv6, body_crc=0, born_timestamp=NOW_MS, born_host=V6 if ipv6 & 0x10 else V4,
            store_timestamp=NOW_MS + number * self.random.choice((0, 1, 1, 700)), store_host=V6 if ipv6 & 0x20 else V4,
            reconsume_times=0, prepared_transaction_offset=0, body=body, properties=self.properties(number),
        )  # fmt: skip
        self.store(message)

    def store(self, message: Message) -> None:
        size = len(encode(message))
        left = self.segment_size - len(self.log) % self.segment_size
        if size + record.PREFIX.size > left:
            self.log += encode_blank(left)[:left].ljust(left, b"\0")
        message.physical_offset = len(self.log)
        self.log += encode(message)

    def segment(self, position: int) -> tuple[memoryview, int]:
        start = position - position % self.segment_size
        return memoryview(self.log)[start : start + self.segment_size], start


WAYS = ["one by one", "in bulk", *(["compiled"] if presence.native is not None else [])]
"""How a dispatcher takes what it can; what it cannot take so it takes one by one."""


def dispatcher_in(
    root: Path | SegmentDirectory,
    *,
    bulk: bool,
    compiled: bool = False,
    slots: int = 50,
    entries: int = 600,
    file_size: int = 4_000,
    rows_min: int = 1,
    kind: type[Dispatcher] = Dispatcher,
) -> tuple[Dispatcher, QueueTable, IndexTable]:
    moments: Iterator[int] = iter(range(NOW_MS, NOW_MS + 1_000_000))
    directory = RealSegmentDirectory(root) if isinstance(root, Path) else root
    queues = QueueTable(directory.subdirectory("consumequeue"), file_size)
    index = IndexTable(directory.subdirectory("index"), slots, entries, lambda: next(moments))
    dispatcher = kind(queues, LEVELS, index)
    if not compiled:
        dispatcher._plain = None
        dispatcher.known = deque(maxlen=KNOWN_MAX)
    if not bulk:
        dispatcher.bulk = None
    else:
        assert dispatcher.bulk is not None, "NumPy is installed"
        dispatcher.bulk.records_min = rows_min
        dispatcher.bulk.queue_rows_min = 0
    return dispatcher, queues, index


def dispatch(dispatcher: Dispatcher, case: Case, limits: list[int], tries: int = 1) -> list[Any]:
    """Up to each of the limits in turn; what it was told meanwhile."""
    told: list[Any] = []
    for limit in limits:
        failed = 0
        while dispatcher.position < limit:
            view, start = case.segment(dispatcher.position)
            before = dispatcher.position
            try:
                more = dispatcher.run(view, start, start + case.segment_size, limit, 512)
            except StoreCorrupted as error:
                return [*told, str(error)]
            except OSError:
                failed += 1
                assert failed < tries
                continue
            if not more and dispatcher.position == before:
                break
        grown = sorted(dispatcher.take_grown())
        told.append((dispatcher.position, dispatcher.store_timestamp, dispatcher.skips, grown))
    return told


async def synced(queues: QueueTable, index: IndexTable) -> None:
    await queues.sync()
    await index.sync()


def on_disk(root: Path, queues: QueueTable, index: IndexTable) -> dict[str, bytes]:
    asyncio.run(synced(queues, index))
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }


def both_ways(
    case: Case,
    limits: list[int],
    kind: type[Dispatcher] = Dispatcher,
    *,
    root: Path | None = None,
    **geometry: int,
) -> list[Any]:
    """Without `root` on a simulated disk, whose files are views like those of a real one, and cost a fraction."""
    found: list[tuple[Any, ...]] = []
    for way in WAYS:
        with World(1) as world:
            node = world.node("broker", "10.0.0.1")
            folder = node.runtime().segments if root is None else root / way
            dispatcher, queues, index = dispatcher_in(
                folder, bulk=way == "in bulk", compiled=way == "compiled", kind=kind, **geometry
            )
            told = dispatch(dispatcher, case, limits)
            if root is None:
                world.run(synced(queues, index))
                content = {path: bytes(inode.data) for path, inode in node.disk.entries.items()}
            else:
                content = on_disk(root / way, queues, index)
            found.append((told, index.phy_end, queues.next_offsets(), content))
            queues.close()
            index.close()
    one_by_one, *others = found
    assert all(other == one_by_one for other in others)
    shown: list[Any] = one_by_one[0]
    return shown


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("odd", [0.0, 0.03, 0.5])
def test_a_log_leaves_the_same_bytes_in_bulk(seed: int, odd: float) -> None:
    case = Case(seed, 900, odd=odd)
    limits = sorted(case.random.randrange(case.end) for _ in range(case.random.randrange(4))) + [case.end]
    told = both_ways(case, limits, slots=case.random.choice((1, 7, 5_000)), entries=600)
    assert told[-1][0] == case.end


@pytest.mark.parametrize("seed", range(4))
def test_and_with_files_as_large_as_usual_and_the_limits_of_every_day(tmp_path: Path, seed: int) -> None:
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
def test_most_of_an_ordinary_log_is_not_taken_one_by_one(
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
    assert singles < 2_000, "one step begins the queues, another one the index"
    queues.close()
    index.close()


@pytest.mark.parametrize("seed", range(30))
def test_what_is_damaged_is_found_at_the_same_record(seed: int) -> None:
    case = Case(seed, 400, odd=0.05)
    at = case.random.randrange(case.end)
    case.log[at] ^= 1 << case.random.randrange(8)
    both_ways(case, [case.end])


@pytest.mark.parametrize("seed", range(12))
def test_a_disk_that_is_full_now_and_then_changes_nothing(
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
        told = dispatch(dispatcher, case, [case.end // 2, case.end], tries=10_000)
        refusing = False
        content = on_disk(root, queues, index)
        indexed = [
            content.pop(name) for name in sorted(content) if name.startswith("index")
        ]  # names are of other times
        ends = [
            (position, timestamp, grown) for position, timestamp, _, grown in told
        ]  # a skip is told again when tried again
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
def test_rows_are_the_facts_of_single_records(seed: int, odd: float) -> None:
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
    if found != rows:  # a topic longer than brokers take is for the ways of one record
        assert found == rows[: len(found)] and len(rows[len(found)][1]) > record.TOPIC_BYTES_MAX


def test_a_body_or_a_text_that_is_not_whole_ends_the_rows() -> None:
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


def test_no_more_rows_at_once_than_the_loop_can_wait_for() -> None:
    case = Case(5, ROWS_MAX + 300, odd=0.0, segment_size=4 << 20)
    buffer, size = held(case)
    assert len(records_in(buffer, size, 0)) == ROWS_MAX


def test_records_of_a_segment_that_is_not_the_first(tmp_path: Path) -> None:
    case = Case(8, 1_200, odd=0.0, segment_size=65_536)
    start = case.segment_size
    part = case.log[start : start + case.segment_size]
    records = records_in(part + bytearray(ROOM_BYTES), len(part), start)
    assert len(records) > 200 and records.physical_offsets[0] == start
    assert records.starting_below(start) == 0 and records.ending_by(records.end_offset) == len(records)
    assert records.ending_by(records.end_offset - 1) == len(records) - 1


@pytest.mark.parametrize("seed", range(10))
def test_values_are_what_a_look_at_each_text_finds(seed: int) -> None:
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


def test_layouts_are_those_of_the_structs() -> None:
    queue_entry, index_entry = (1 << 40, 77, -5), (123, 1 << 41, 9, 8)
    assert np.frombuffer(consumequeue.ENTRY.pack(*queue_entry), QUEUE_ENTRIES)[0].tolist() == queue_entry
    assert np.frombuffer(index_file.ENTRY.pack(*index_entry), INDEX_ENTRIES)[0].tolist() == index_entry
    assert np.frombuffer(index_file.SLOT.pack(7), INDEX_SLOTS).tolist() == [7]


def test_entries_of_a_queue_are_plain_up_to_the_first_that_cannot_follow() -> None:
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


def test_few_or_large_records_are_left_to_the_ways_of_one(tmp_path: Path) -> None:
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


def test_what_is_bytes_is_read_where_it_is_but_for_its_end(tmp_path: Path) -> None:
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
    """Some pieces of the newest files never came to the disk, or came from another moment."""
    for folder in {path.parent for path in root.rglob("*") if path.is_file()}:
        path = max(path for path in folder.iterdir())
        content = bytearray(path.read_bytes())
        for _ in range(chance.randrange(3)):
            at = chance.randrange(len(content))
            size = min(chance.choice((1, 7, 20, 500)), len(content) - at)
            content[at : at + size] = chance.choice((bytes(size), chance.randbytes(size)))
        path.write_bytes(content)


@pytest.mark.parametrize("seed", range(40))
def test_what_a_power_cut_left_is_read_in_bulk_as_it_is_one_by_one(
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
from tests.unit.messagestore.storehelp import message, open_store

async def life(first):
    store = open_store(Path(sys.argv[1]))
    await store.start()
    await store.become_master()
    store.append([message(properties=b"KEYS\\x01k%d\\x02" % number) for number in range(first, first + 200)])
    store.set_confirm_offset(store.max_offset())
    while store.dispatch():
        pass
    assert store.max_queue_offset("TopicTest", 0) == first + 200
    assert len(await store.find_by_key("TopicTest", f"k{first + 7}", 9, 0, 1 << 62)) == 1
    await store.stop()
    Path(sys.argv[1], "abort").touch()

asyncio.run(life(0))
asyncio.run(life(200))
assert "numpy" not in sys.modules
"""


def test_a_store_lives_without_numpy(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_NUMPY, str(tmp_path)], cwd=ROOT, check=True)
