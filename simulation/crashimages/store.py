"""Crash tests of a message store on a disk that loses unsynced data. At many steps of a script the process is killed, or the
machine loses power, and the store is recovered."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from functools import partial

from messagestore import record
from messagestore.messages import MessageToStore
from messagestore.queues.consumequeue import filler, is_filler
from messagestore.store.messagestore import MessageStore
from messagestore.store.settings import StoreSettings
from mqruntime.runtime import Runtime
from simulation.crashimages import lives
from simulation.kernel.node import Node
from simulation.kernel.world import World

SEGMENT_SIZE = 8192
BODY_SIZES = (40,) * 9 + (900, 5000)  # mostly equal, so that new records end where cut records began
SCRIPT_STEPS = 40
LAST_SCRIPT_STEPS = 10
"""Steps of the last life, which nothing crashes. What it recovered is checked before its first step."""
CRASHES = 80
KEYS = [b"", *(b"KEYS\x01k%d\x02" % number for number in range(4)), b"KEYS\x01k1 k2\x02UNIQ_KEY\x01U\x02"]
QUEUES = [("TopicA", 0), ("TopicA", 1), ("TopicB", 0)]


@dataclass
class WrittenRecords:
    """What the script knows about the log: each record with its bytes, and what the store promised about the record."""

    records: dict[int, bytes] = field(default_factory=dict)
    end: int = 0
    synced_end: int = 0
    cut_records: dict[int, bytes] = field(default_factory=dict)  # removed by the cut under way

    def recovered(self, records: dict[int, bytes], end: int) -> None:
        """Note that a recovery found these records and made all of them durable."""
        self.records, self.end, self.synced_end = records, end, end
        self.cut_records = {}


def take_all_in_bulk(store: MessageStore) -> None:
    """Make stores handle records in bulk, however few there are."""
    bulk = store._dispatcher.bulk
    assert bulk is not None, "NumPy is installed"
    bulk.records_min = bulk.queue_rows_min = 0


class StoreScript:
    """An app that recovers a store, compares it with what was written, continues with it and notes what it promises. A script
    that `rests` stops the store cleanly half way, and continues from there."""

    def __init__(
        self, runtime: Runtime, seed: str, written: WrittenRecords, script_steps: int, *, rests: bool
    ) -> None:
        self.random = random.Random(seed)
        settings = StoreSettings(
            mappedFileSizeCommitLog=SEGMENT_SIZE,
            mappedFileSizeConsumeQueue=600,
            maxIndexNum=self.random.choice((16, 16, 400)),
            maxHashSlotNum=self.random.choice((5, 2_000)),  # chains, or slots on separate pages
            flushIntervalCommitLog=self.random.choice((20, 5_000)),
            flushIntervalConsumeQueue=self.random.choice((5, 1_000)),
        )
        self.bulk = self.random.random() < 0.5
        self.opened = partial(MessageStore, runtime, settings, on_fatal=self.fail)
        self.store = self.opened()
        self.rests = rests
        self.written = written
        self.script_steps = script_steps
        self.done = False
        self.failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        self.failure = error

    async def start(self) -> None:
        await self.open()
        for number in range(self.script_steps):
            if self.rests and number == self.script_steps // 2:
                await self.rest()
            await self.step()
        self.done = True

    async def open(self) -> None:
        if self.bulk:
            take_all_in_bulk(self.store)
        await self.store.start()
        check_recovered(self.store, self.written)
        self.written.recovered(records_of(self.store), self.store.max_offset())
        await self.store.become_master()

    async def rest(self) -> None:
        await self.store.stop()
        self.written.synced_end = self.written.end
        self.store = self.opened()
        await self.open()

    async def stop(self) -> None:
        await self.store.stop()

    async def wait_failed(self) -> BaseException:
        failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        return await failed

    async def step(self) -> None:
        choice = self.random.random()
        if choice < 0.5 or not self.written.records:
            self.append()
        elif choice < 0.6:
            await self.flush()
        elif choice < 0.7:
            # may exceed the margin of timestamps
            await asyncio.sleep(self.random.choice((0.001, 0.03, 1.1, 4.0)))
        elif choice < 0.85:
            self.store.set_confirm_offset(self.random.randint(self.store.confirm_offset(), self.written.end))
        elif choice < 0.88:
            await self.receive_part_of_a_record()
        elif choice < 0.92:
            await self.receive_what_skips_queue_offsets()
        else:
            await self.truncate()

    async def flush(self) -> None:
        synced_end = min(await self.store.flush(), self.written.end)
        self.written.synced_end = max(self.written.synced_end, synced_end)

    async def receive_part_of_a_record(self) -> None:
        """A slave's connection breaks in the middle of a record. Part of the record may have entered the log."""
        self.store.become_slave()
        end = self.store.max_offset()
        part = self.random.choice(list(self.written.records.values()))[:-1]
        view = self.store.write_view(end, len(part))
        filled = self.random.randint(0, len(view))
        view[:filled] = part[:filled]
        self.store.advance(end + self.random.randint(0, filled))
        await self.flush()
        await self.store.become_master()

    async def receive_what_skips_queue_offsets(self) -> None:
        """Receive records that skip queue offsets, as from a master of another version, in a queue that has begun."""
        self.store.become_slave()
        end = self.store.max_offset()
        log = [record.decode(content) for content in self.written.records.values()]
        sent = self.random.choice(log)
        queue = [held for held in log if (held.topic, held.queue_id) == (sent.topic, sent.queue_id)]
        sent.queue_offset = max(held.queue_offset for held in queue) + self.random.choice((1, 2, 4, 40))
        sent.physical_offset, sent.store_timestamp = end, max(held.store_timestamp for held in log)
        content = record.encode(sent)
        if len(content) + record.PREFIX.size <= SEGMENT_SIZE - end % SEGMENT_SIZE:
            self.store.write_view(end, len(content))[:] = content
            self.store.advance(end + len(content))
            self.written.records[end] = content
            self.written.end = end + len(content)
        await self.store.become_master()

    def append(self) -> None:
        messages = []
        for _ in range(self.random.choice((1, 1, 2, 12))):
            topic, queue_id = self.random.choice(QUEUES)
            body = self.random.randbytes(self.random.choice(BODY_SIZES))
            properties = b"TAGS\x01a\x02" + self.random.choice(KEYS)
            messages.append(MessageToStore(topic, queue_id, body, properties=properties))
        for appended in self.store.append(messages):
            assert appended.error is None
            size = appended.end_offset - appended.physical_offset
            stored = bytes(self.store.read(appended.physical_offset, size))
            self.written.records[appended.physical_offset] = stored
            self.written.end = appended.end_offset

    async def truncate(self) -> None:
        written = self.written
        boundaries = [offset for offset in written.records if offset >= self.store.confirm_offset() // 2]
        if not boundaries:
            return
        cut = self.random.choice(boundaries)
        written.cut_records = {at: content for at, content in written.records.items() if at >= cut}
        written.records = {at: content for at, content in written.records.items() if at < cut}
        written.synced_end = min(written.synced_end, cut)
        self.store.become_slave()
        await self.store.truncate(cut)
        written.end = cut
        written.cut_records = {}
        await self.store.become_master()


def records_of(store: MessageStore) -> dict[int, bytes]:
    found = {}
    position = store.min_offset()
    while position < store.max_offset():
        view, start = store._log.segment_view(position)
        left = SEGMENT_SIZE - (position - start)
        size = record.check(view, position - start, left, position)
        if size == record.END_OF_SEGMENT:
            position = start + SEGMENT_SIZE
            continue
        assert size > 0, f"the recovered log is not readable at {position}"
        found[position] = bytes(view[position - start : position - start + size])
        position += size
    return found


def check_recovered(store: MessageStore, written: WrittenRecords) -> None:
    found = records_of(store)
    possible = {**written.cut_records, **written.records}
    for offset, content in found.items():
        assert possible.get(offset) == content, f"{offset} was never written like this, or was cut"
    for offset, content in written.records.items():
        if offset + len(content) <= written.synced_end:
            assert offset in found, f"{offset} was synced up to {written.synced_end} and is gone"
    confirm = store.confirm_offset()
    assert confirm <= store.max_offset()
    expected: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for offset, content in found.items():
        if offset + len(content) <= confirm:
            message = record.decode(content)
            expected.setdefault((message.topic, message.queue_id), []).append((offset, len(content)))
    indexed = {}
    for topic, queue_id in store.queues():
        queue = store._queues.find(topic, queue_id)
        assert queue is not None and queue.min_queue_offset == 0
        entries = list(queue.entries(0, queue.max_queue_offset))
        if real := [(phy, size) for phy, size, _ in entries if not is_filler((phy, size, 0))]:
            indexed[topic, queue_id] = real
            check_places(found, entries)
        assert bool(real) == bool(entries) and (not entries or not is_filler(entries[-1]))
    assert indexed == expected
    check_index(store, {offset: found[offset] for queue in expected.values() for offset, _ in queue})


def check_places(found: dict[int, bytes], entries: list[tuple[int, int, int]]) -> None:
    """Check that each record is at its own queue offset, and that fillers name the record behind them."""
    behind = 0
    for place, entry in reversed(list(enumerate(entries))):
        if is_filler(entry):
            assert entry == filler(behind)
        else:
            behind = entry[0]
            assert record.decode(found[behind]).queue_offset == place


def check_index(store: MessageStore, confirmed: dict[int, bytes]) -> None:
    """Check that each key leads to the confirmed records that have it, newest first, and to no other record."""
    expected: dict[tuple[str, str], list[int]] = {}
    for offset in sorted(confirmed, reverse=True):
        message = record.decode(confirmed[offset])
        pairs = message.property_map
        for key in [*pairs.get("KEYS", "").split(), *pairs.get("UNIQ_KEY", "").split()]:
            expected.setdefault((message.topic, key), []).append(offset)
    assert store._index is not None
    for topic in ("TopicA", "TopicB"):
        for key in ("k0", "k1", "k2", "k3", "U"):
            found = list(store._index.find(topic, key, 0, 1 << 62))
            assert found == expected.get((topic, key), []), f"{key} of {topic}"


def live(
    world: World,
    node: Node,
    seed: str,
    written: WrittenRecords,
    steps: int | None,
    script_steps: int = SCRIPT_STEPS,
) -> int:
    """Play one life of the process. If the world's seed is odd, the script stops the store cleanly in the middle."""
    rests = world.seed % 2 == 1
    return lives.live(
        world, node, lambda runtime: StoreScript(runtime, seed, written, script_steps, rests=rests), steps
    )


def crash_everywhere(seed: int, *, power_cut: bool) -> int:
    """Crash one script at many of its steps, recover it and crash it again. Returns the number of crashes."""
    crashes = 0
    with World(seed) as world:
        total = live(world, world.node("broker-0", "10.0.0.1"), f"{seed}/0", WrittenRecords(), None)
    for steps in range(1, total, max(1, total // CRASHES)):
        chance = random.Random(f"{seed}/{steps}")
        with World(seed) as world:
            node, written = world.node("broker-0", "10.0.0.1"), WrittenRecords()
            live(world, node, f"{seed}/0", written, steps)
            node.kill(power_cut=power_cut)
            live(world, node, f"{seed}/{steps}/1", written, chance.randrange(1, total))
            node.kill(power_cut=chance.random() < 0.5)
            live(world, node, f"{seed}/{steps}/2", written, None, LAST_SCRIPT_STEPS)
        crashes += 2
    return crashes
