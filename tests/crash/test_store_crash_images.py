"""The store on a disk that forgets: crashed at every step of a script, by kill and by power cut, then recovered."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from messagestore import record
from messagestore.messages import MessageToStore
from messagestore.settings import StoreSettings
from messagestore.store import MessageStore
from mqruntime.runtime import Runtime
from simulation.node import Node
from simulation.world import World

SETTINGS = StoreSettings(
    mapped_file_size_commit_log=8192,
    mapped_file_size_consume_queue=200,
    flush_interval_commit_log=20,
    flush_consume_queue_thorough_interval=50,
)
SCRIPT_STEPS = 30
CRASHES_PER_SEED = 60
QUEUES = [("TopicA", 0), ("TopicA", 1), ("TopicB", 0)]


@dataclass
class Written:
    """What the script knows of the log: each record with its bytes, and what the store promised about it."""

    records: dict[int, bytes] = field(default_factory=dict)
    end: int = 0
    synced_end: int = 0
    cut_under_way: int | None = None
    cut_records: dict[int, bytes] = field(default_factory=dict)  # taken away by the cut that is under way

    def bytes_at(self, offset: int) -> bytes | None:
        return self.records.get(offset)


class Script:
    """An app that drives one store and notes what it was promised."""

    def __init__(self, runtime: Runtime, seed: int, written: Written) -> None:
        self.store = MessageStore(runtime, SETTINGS, on_fatal=self.fail)
        self.random = random.Random(seed)
        self.written = written
        self.done = False
        self.failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        self.failure = error

    async def start(self) -> None:
        await self.store.start()
        await self.store.become_master()
        for _ in range(SCRIPT_STEPS):
            await self.step()
        self.done = True

    async def stop(self) -> None:
        await self.store.stop()

    async def wait_failed(self) -> BaseException:
        return await asyncio.get_running_loop().create_future()

    async def step(self) -> None:
        choice = self.random.random()
        if choice < 0.5 or not self.written.records:
            self.append()
        elif choice < 0.6:
            self.written.synced_end = max(self.written.synced_end, await self.store.flush())
        elif choice < 0.7:
            await asyncio.sleep(self.random.choice((0.001, 0.03, 1.1)))
        elif choice < 0.85:
            self.store.set_confirm_offset(self.random.randint(self.store.confirm_offset(), self.written.end))
        else:
            await self.truncate()

    def append(self) -> None:
        messages = []
        for _ in range(self.random.randint(1, 6)):
            topic, queue_id = self.random.choice(QUEUES)
            body = self.random.randbytes(self.random.choice((40, 40, 40, 900, 5000)))
            messages.append(MessageToStore(topic, queue_id, body, properties=b"TAGS\x01a\x02"))
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
        written.cut_under_way = cut
        written.synced_end = min(written.synced_end, cut)
        self.store.become_slave()
        await self.store.truncate(cut)
        written.end = cut
        written.cut_under_way, written.cut_records = None, {}
        await self.store.become_master()


class Reopened:
    """An app that only recovers."""

    def __init__(self, runtime: Runtime) -> None:
        self.store = MessageStore(runtime, SETTINGS, on_fatal=self.fail)
        self.started = False

    def fail(self, error: BaseException) -> None:
        raise AssertionError("the recovered store failed") from error

    async def start(self) -> None:
        await self.store.start()
        self.started = True

    async def stop(self) -> None:
        await self.store.stop()

    async def wait_failed(self) -> BaseException:
        return await asyncio.get_running_loop().create_future()


def records_of(store: MessageStore) -> dict[int, bytes]:
    found = {}
    position = store.min_offset()
    while position < store.max_offset():
        view, start = store._log.segment_view(position)
        left = SETTINGS.mapped_file_size_commit_log - (position - start)
        size = record.check(view, position - start, left, position)
        if size == record.END_OF_SEGMENT:
            position = start + SETTINGS.mapped_file_size_commit_log
            continue
        assert size > 0, f"the recovered log is not readable at {position}"
        found[position] = bytes(view[position - start : position - start + size])
        position += size
    return found


def check_recovered(store: MessageStore, written: Written) -> None:
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
        if entries := [(phy, size) for phy, size, _ in queue.entries(0, queue.max_queue_offset)]:
            indexed[topic, queue_id] = entries
    assert indexed == expected


def run_script(world: World, seed: int, written: Written, steps: int | None) -> tuple[Node, int]:
    """Runs the script to its end, or until the event loop has taken that many steps. Returns the steps taken."""
    node = world.node("broker-0", "10.0.0.1")
    apps: list[Script] = []
    taken = 0

    def count() -> None:
        nonlocal taken
        taken += 1

    def make(runtime: Runtime) -> Script:
        apps.append(Script(runtime, seed, written))
        return apps[-1]

    world.after_each_step(count)
    node.start(make)
    world.run_until(lambda: taken == steps or any(app.done for app in apps), limit_ms=600_000)
    assert all(app.failure is None for app in apps)
    return node, taken


def crash_after(seed: int, steps: int, *, power_cut: bool) -> None:
    """Crashes the script after that many steps of the event loop, recovers and checks; then once more."""
    written = Written()
    with World(seed) as world:
        node, _ = run_script(world, seed, written, steps)
        node.kill(power_cut=power_cut)
        store = reopen(world, node)
        check_recovered(store, written)
        recovered = records_of(store)
        node.kill(power_cut=power_cut)
        again = reopen(world, node)
        assert records_of(again) == recovered, "what one recovery found, the next one keeps"
        check_recovered(again, written)


def reopen(world: World, node: Node) -> MessageStore:
    apps: list[Reopened] = []

    def make(runtime: Runtime) -> Reopened:
        apps.append(Reopened(runtime))
        return apps[-1]

    node.start(make)
    world.run_until(lambda: bool(apps) and apps[0].started, limit_ms=60_000)
    return apps[0].store


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power-cut"])
@pytest.mark.parametrize("seed", range(10))
def test_wherever_a_crash_hits_the_store_recovers_to_what_it_promised(seed: int, power_cut: bool) -> None:
    with World(seed) as world:
        _, total = run_script(world, seed, Written(), None)
    for steps in range(1, total, max(1, total // CRASHES_PER_SEED)):
        crash_after(seed, steps, power_cut=power_cut)
