"""Tables next to a log, crashed at every step: they load after each crash with the saved content."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from broker.settings.broker import BrokerSettings
from broker.tables.savedtable import TableUnreadable
from broker.tables.tables import Tables
from messagestore.messages import MessageToStore
from messagestore.store.messagestore import MessageStore
from messagestore.store.settings import StoreSettings
from mqruntime.runtime import Runtime
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.topics import TopicConfig
from simulation.crashimages import lives
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.support.longtests import long

SCRIPT_STEPS = 30
CRASHES_PER_SEED = 50
FOLDER = "config/"


@dataclass
class Saved:
    """The content on disk when a save returned."""

    topics: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    offset: int = 0
    delay_offset: int = 0


class Script:
    """An app that opens log and tables, checks them, and continues to write both."""

    def __init__(self, runtime: Runtime, seed: str, saved: Saved) -> None:
        self.random = random.Random(seed)
        self.store = MessageStore(
            runtime,
            StoreSettings(mapped_file_size_commit_log=65_536, flush_interval_consume_queue=20),
            on_fatal=self.fail,
        )
        settings = BrokerSettings(enable_property_filter=True)
        self.tables = Tables(settings, runtime.files, runtime.clock, self.store)
        self.saved = saved
        self.done = False
        self.failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        self.failure = error

    async def start(self) -> None:
        await self.store.start()
        await self.tables.load()
        self.check()
        await self.store.become_master()
        self.tables.role_taken(1, leads=True)
        for _ in range(SCRIPT_STEPS):
            await self.step()
        self.done = True

    async def stop(self) -> None:
        await self.tables.save()
        await self.store.stop()

    async def wait_failed(self) -> BaseException:
        return await asyncio.get_running_loop().create_future()

    def check(self) -> None:
        assert self.saved.topics <= set(self.tables.topics.names())
        assert all(self.tables.groups.find(group) for group in self.saved.groups)
        assert (self.tables.offsets.find("CG", "orders", 0) or 0) >= self.saved.offset
        assert self.tables.delays.next_offset(1) >= self.saved.delay_offset

    async def step(self) -> None:
        tables, number = self.tables, self.random.randrange(1_000)
        match self.random.randrange(9):
            case 0:
                tables.topics.put(TopicConfig(f"topic-{number}", 4, 4))
            case 1:
                tables.groups.put(SubscriptionGroupConfig(f"group-{number}"))
            case 2:
                tables.offsets.commit("CG", "orders", 0, self.saved.offset + number)
            case 3:
                tables.delays.advance(1, self.saved.delay_offset + number)
            case 4:
                tables.delete_topic(f"gone-{number}", self.store.max_offset())
            case 5:
                self.store.append([MessageToStore("orders", 0, b"body %d" % number)])
                self.store.set_confirm_offset(self.store.max_offset())
            case 6:
                await asyncio.sleep(self.random.choice((0.001, 0.03, 0.3)))
            case 7:
                await self.save(whole=False)
            case _:
                await self.save(whole=True)

    async def save(self, *, whole: bool) -> None:
        tables = self.tables
        topics = {name for name in tables.topics.names() if name.startswith("topic-")}
        groups = {f"group-{number}" for number in range(1_000) if tables.groups.find(f"group-{number}")}
        offset, delay_offset = tables.offsets.find("CG", "orders", 0) or 0, tables.delays.next_offset(1)
        await (tables.save() if whole else tables.save_facts())
        self.saved.topics, self.saved.groups = topics, groups
        if whole:
            self.saved.offset, self.saved.delay_offset = offset, delay_offset


def live(world: World, node: Node, seed: str, saved: Saved, steps: int | None) -> int:
    return lives.live(world, node, lambda runtime: Script(runtime, seed, saved), steps)


def refused(world: World, node: Node) -> bool:
    """Whether a start is refused because of the remaining tables."""
    apps: list[Script] = []

    def make(runtime: Runtime) -> Script:
        apps.append(Script(runtime, "started again", Saved()))
        return apps[-1]

    node.start(make)
    world.run_until(lambda: node.failure is not None or any(app.done for app in apps), limit_ms=60_000)
    failure = node.failure
    node.kill()
    assert failure is None or isinstance(failure, TableUnreadable)
    return failure is not None


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power-cut"])
@pytest.mark.parametrize("seed", [*range(2), *long(range(2, 8))])
def test_after_a_crash_at_any_step_tables_load_the_saved_state(seed: int, power_cut: bool) -> None:
    with World(seed) as world:
        total = live(world, world.node("broker-0", "10.0.0.1"), f"{seed}/0", Saved(), None)
    crashes = 0
    for steps in range(1, total, max(1, total // CRASHES_PER_SEED)):
        chance = random.Random(f"{seed}/{steps}")
        with World(seed) as world:
            node, saved = world.node("broker-0", "10.0.0.1"), Saved()
            live(world, node, f"{seed}/0", saved, steps)
            node.kill(power_cut=power_cut)
            live(world, node, f"{seed}/{steps}/1", saved, chance.randrange(1, total))
            node.kill(power_cut=chance.random() < 0.5)
            live(world, node, f"{seed}/{steps}/2", saved, None)
        crashes += 2
    assert crashes > CRASHES_PER_SEED


@pytest.mark.parametrize("seed", range(3))
def test_a_start_with_lost_table_files_is_refused(seed: int) -> None:
    with World(seed) as world:
        node = world.node("broker-0", "10.0.0.1")
        live(world, node, f"{seed}/0", Saved(), None)
        world.run(node.stop())
        live(world, node, f"{seed}/1", Saved(), None)
        world.run(node.stop())
        names = [path for path in node.disk.entries if path.startswith(FOLDER) and path.endswith(".json")]
        assert len(names) >= 4
        whole = {
            path: node.disk.content(path) or b"" for path in node.disk.entries if path.startswith(FOLDER)
        }
        for lost in [*names, FOLDER]:
            node.disk.wipe(lost)
            assert refused(world, node), lost
            for path, content in whole.items():
                node.disk.put(path, content)
        assert not refused(world, node)
