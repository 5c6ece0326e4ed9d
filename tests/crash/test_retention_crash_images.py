"""A store whose log start moves, crashed at every step: it opens after each crash and is complete."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from epochfile.file import EpochFile
from ha.epochs import KeptEpochs
from messagestore import record
from messagestore.messages import MessageToStore
from messagestore.queues.consumequeue import is_filler
from messagestore.store.messagestore import MessageStore
from messagestore.store.settings import StoreSettings
from mqruntime.runtime import Runtime
from simulation.crashimages import lives
from simulation.crashimages.store import records_of
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.support.longtests import long

SEGMENT_SIZE = 8192
SCRIPT_STEPS = 60
LAST_SCRIPT_STEPS = 15
"""Steps of the last run, which is not crashed. The recovered state is checked before the first step."""
CRASHES_PER_SEED = 60
QUEUES = [("TopicA", 0), ("TopicA", 1), ("TopicB", 0)]


@dataclass
class Promised:
    """The results of the script: the durable end, the bounds of the log start, and the ends of the queues."""

    records: dict[int, bytes] = field(default_factory=dict)
    synced_end: int = 0
    begins_min: int = 0
    begins_max: int = 0
    queue_ends: dict[tuple[str, int], int] = field(default_factory=dict)  # of what was deleted


class Script:
    """An app that recovers a store with its epoch file, checks both, and continues to write."""

    def __init__(self, runtime: Runtime, seed: str, promised: Promised, script_steps: int) -> None:
        self.random = random.Random(seed)
        settings = StoreSettings(
            mapped_file_size_commit_log=SEGMENT_SIZE,
            mapped_file_size_consume_queue=200,
            max_index_num=16,
            max_hash_slot_num=5,
            flush_interval_commit_log=self.random.choice((20, 5_000)),
            flush_interval_consume_queue=self.random.choice((5, 300)),
        )
        self.store = MessageStore(runtime, settings, on_fatal=self.fail)
        self.epochs = KeptEpochs(EpochFile(runtime.files))
        self.promised = promised
        self.script_steps = script_steps
        self.done = False
        self.failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        self.failure = error

    async def start(self) -> None:
        await self.store.start()
        await self.epochs.load(self.store)
        self.check()
        await self.new_epoch()
        for _ in range(self.script_steps):
            await self.step()
        self.done = True

    async def stop(self) -> None:
        await self.store.stop()

    async def wait_failed(self) -> BaseException:
        return await asyncio.get_running_loop().create_future()

    async def step(self) -> None:
        choice = self.random.random()
        if choice < 0.5:
            self.append()
        elif choice < 0.55:
            self.promised.synced_end = max(self.promised.synced_end, await self.store.flush())
        elif choice < 0.7:
            await asyncio.sleep(self.random.choice((0.001, 0.03, 1.1, 1.1)))
        elif choice < 0.82:
            self.store.set_confirm_offset(self.store.max_offset())
        elif choice < 0.88:
            await self.new_epoch()
        elif choice < 0.9:
            await self.truncate()
        else:
            await self.retain()

    def append(self) -> None:
        messages = []
        for _ in range(self.random.choice((1, 4, 12))):
            topic, queue_id = self.random.choice(QUEUES[: self.random.choice((1, 3))])
            messages.append(
                MessageToStore(
                    topic,
                    queue_id,
                    self.random.randbytes(self.random.choice((40, 900))),
                    properties=b"KEYS\x01k\x02",
                )
            )
        for appended in self.store.append(messages):
            assert appended.error is None
            size = appended.end_offset - appended.physical_offset
            self.promised.records[appended.physical_offset] = bytes(
                self.store.read(appended.physical_offset, size)
            )

    async def new_epoch(self) -> None:
        """Becomes master: truncates an incomplete record and makes the epoch's entry durable before the first
        append."""
        await self.store.become_master()
        history = self.epochs.within(self.store)
        await self.epochs.store(history.append((history.last_epoch() + 1, self.store.max_offset())))

    async def truncate(self) -> None:
        """Truncates the log above the confirm offset, as a slave with a diverged log does."""
        confirm = self.store.confirm_offset()
        cut = self.random.choice([at for at in self.promised.records if at >= confirm] or [confirm])
        self.store.become_slave()
        self.promised.synced_end = min(self.promised.synced_end, cut)
        await self.store.truncate(cut)
        self.promised.records = {at: held for at, held in self.promised.records.items() if at < cut}
        await self.epochs.store(self.epochs.history.truncate_suffix(self.store.max_offset()))
        await self.new_epoch()

    async def retain(self) -> None:
        """Deletes segments as the broker's clean-up does; only allowed ones."""
        store, promised = self.store, self.promised
        if self.random.random() < 0.7:
            store.set_confirm_offset(store.max_offset())
            promised.synced_end = max(promised.synced_end, await store.flush())
            await asyncio.sleep(1.1)
        wanted = store.vouched_offset() // SEGMENT_SIZE - self.random.choice((0, 0, 1))
        end = min(wanted, (store.max_offset() - 1) // SEGMENT_SIZE) * SEGMENT_SIZE
        if end <= store.min_offset():
            return
        promised.begins_max = max(promised.begins_max, end)
        await store.begin_at(end, lambda: True)
        await self.epochs.truncate_prefix(store.min_offset())
        promised.begins_min = store.min_offset()
        for at, content in promised.records.items():
            if at < store.min_offset():
                message = record.decode(content)
                queue = message.topic, message.queue_id
                promised.queue_ends[queue] = max(promised.queue_ends.get(queue, 0), message.queue_offset + 1)

    def check(self) -> None:
        store, promised = self.store, self.promised
        begins, found = store.min_offset(), records_of(store)
        assert promised.begins_min <= begins <= promised.begins_max and begins % SEGMENT_SIZE == 0
        for at, content in promised.records.items():
            if begins <= at and at + len(content) <= promised.synced_end:
                assert found.get(at) == content, f"{at} is gone, the log begins at {begins}"
        confirm = store.confirm_offset()
        assert confirm >= begins
        self.check_queues({at: held for at, held in found.items() if at + len(held) <= confirm})
        history = self.epochs.within(store)
        assert store.max_offset() == begins or history.entry_at(begins) is not None
        promised.records, promised.synced_end = found, store.max_offset()

    def check_queues(self, confirmed: dict[int, bytes]) -> None:
        store, promised = self.store, self.promised
        expected: dict[tuple[str, int], list[int]] = {}
        for at, content in confirmed.items():
            message = record.decode(content)
            expected.setdefault((message.topic, message.queue_id), []).append(at)
        for topic, queue_id in store.queues():
            first, end = store.min_queue_offset(topic, queue_id), store.max_queue_offset(topic, queue_id)
            entries = store.entries(topic, queue_id, first, end - first)
            assert [e.physical_offset for e in entries if not is_filler(e)] == expected.pop(
                (topic, queue_id), []
            )
            assert end >= promised.queue_ends.get((topic, queue_id), 0), "a queue lost its end offset"
            for place, entry in enumerate(entries, first):
                assert record.decode(confirmed[entry.physical_offset]).queue_offset == place
        assert not expected
        assert store._index is not None
        for topic in ("TopicA", "TopicB"):
            indexed = [at for at in store._index.find(topic, "k", 0, 1 << 62) if at >= store.min_offset()]
            wanted = [at for at, content in confirmed.items() if record.decode(content).topic == topic]
            assert indexed == wanted[::-1]


def live(
    world: World,
    node: Node,
    seed: str,
    promised: Promised,
    steps: int | None,
    script_steps: int = SCRIPT_STEPS,
) -> int:
    return lives.live(world, node, lambda runtime: Script(runtime, seed, promised, script_steps), steps)


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power-cut"])
@pytest.mark.parametrize("seed", [*range(3), *long(range(3, 6))])
def test_after_a_crash_at_any_step_of_retention_the_store_opens_complete(seed: int, power_cut: bool) -> None:
    with World(seed) as world:
        promised = Promised()
        total = live(world, world.node("broker-0", "10.0.0.1"), f"{seed}/0", promised, None)
    assert promised.begins_max > 0, "this seed deletes nothing"
    for steps in range(1, total, max(1, total // CRASHES_PER_SEED)):
        chance = random.Random(f"{seed}/{steps}")
        with World(seed) as world:
            node, promised = world.node("broker-0", "10.0.0.1"), Promised()
            live(world, node, f"{seed}/0", promised, steps)
            node.kill(power_cut=power_cut)
            live(world, node, f"{seed}/{steps}/1", promised, chance.randrange(1, total))
            node.kill(power_cut=chance.random() < 0.5)
            live(world, node, f"{seed}/{steps}/2", promised, None, LAST_SCRIPT_STEPS)
