"""Logs drawn from a seed, and their dispatch in each way."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from messagestore import record
from messagestore.bulk.texts import TEXT_BYTES_MAX
from messagestore.dispatch.dispatcher import KNOWN_MAX, Dispatcher
from messagestore.errors import StoreCorrupted
from messagestore.index.table import IndexTable
from messagestore.queues.table import QueueTable
from messagestore.record import Message, encode, encode_blank, pack_host
from messagestore.systemtopics import SCHEDULE_TOPIC
from mqruntime.segments import RealSegmentDirectory, SegmentDirectory
from nativepath import presence
from simulation.kernel.world import World

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
    """A log drawn from a seed, in segments of equal size, with its end."""

    def __init__(self, seed: int, count: int, *, odd: float, segment_size: int = 65_536) -> None:
        self.random = random.Random(seed)
        self.segment_size = segment_size
        self.odd = odd  # the rate of unusual values
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
"""Ways of dispatch; records that a way cannot take are dispatched one by one."""


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
    """Dispatch up to each limit in turn; return the reports in between."""
    reports: list[Any] = []
    for limit in limits:
        failed = 0
        while dispatcher.position < limit:
            view, start = case.segment(dispatcher.position)
            before = dispatcher.position
            try:
                more = dispatcher.run(view, start, start + case.segment_size, limit, 512)
            except StoreCorrupted as error:
                return [*reports, str(error)]
            except OSError:
                failed += 1
                assert failed < tries
                continue
            if not more and dispatcher.position == before:
                break
        grown = sorted(dispatcher.take_grown())
        reports.append((dispatcher.position, dispatcher.store_timestamp, dispatcher.skips, grown))
    return reports


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
    """Without `root`, use a simulated disk, which is much faster and also has views as files."""
    found: list[tuple[Any, ...]] = []
    for way in WAYS:
        with World(1) as world:
            node = world.node("broker", "10.0.0.1")
            folder = node.runtime().segments if root is None else root / way
            dispatcher, queues, index = dispatcher_in(
                folder, bulk=way == "in bulk", compiled=way == "compiled", kind=kind, **geometry
            )
            reports = dispatch(dispatcher, case, limits)
            if root is None:
                world.run(synced(queues, index))
                content = {path: bytes(inode.data) for path, inode in node.disk.entries.items()}
            else:
                content = on_disk(root / way, queues, index)
            found.append((reports, index.phy_end, queues.next_offsets(), content))
            queues.close()
            index.close()
    one_by_one, *others = found
    assert all(other == one_by_one for other in others)
    shown: list[Any] = one_by_one[0]
    return shown
