"""Three brokers' replication on virtual time, from a seed: cuts, resets, kills, pauses, masters elected from
the SyncStateSet, alters whose request or reply is lost or late.

Checked all along: everything ever acked is one chain of bytes (C6): whatever a master of any epoch acks
extends what was acked before. In the end all logs are the last master's."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from epochfile.file import EpochFile
from ha.errors import EpochFenced, ReplicasUnread
from ha.master.admittance import RegisteredReplica, Table
from ha.service.haservice import HAService
from ha.settings import HASettings
from ha.syncstateset import Alter, AlterOutcome, AlterRefused, AlterUnknown, Applied
from mqruntime.runtime import Runtime
from simulation.kernel.world import World
from tests.unit.ha.memorylog import MemoryLog, record

PORT = 10912
EVENTS = [*["append"] * 4, "cut", "heal", "reset", "half", "kill", "elect", "controllers", "pause"]
SETTINGS = HASettings(
    slave_not_caught_up_ms_max=3_000, heartbeat_interval_ms=500, housekeeping_interval_ms=4_000
)


class Controllers:
    """Decide at once and correctly; only requests and replies are lost or delayed."""

    def __init__(self) -> None:
        self.epoch, self.master, self.members, self.set_epoch = 0, 1, frozenset({1}), 0
        self.elect(1)

    def elect(self, broker_id: int) -> None:
        assert broker_id in self.members
        self.epoch += 1
        self.set_epoch += 1
        self.master, self.members = broker_id, frozenset({broker_id})

    def alter(self, members: frozenset[int], epoch: int, set_epoch: int) -> bool:
        if (epoch, set_epoch) != (self.epoch, self.set_epoch):
            return False
        self.set_epoch += 1
        self.members = members
        return True


class App:
    """A process: replication, and a minimal broker around it."""

    def __init__(self, broker: Broker, runtime: Runtime) -> None:
        self.broker = broker
        self.epoch = -1
        self.is_master = False
        self.ha = HAService(
            broker.log,
            EpochFile(runtime.files),
            settings=SETTINGS,
            clock=runtime.clock,
            host=broker.node.host,
            port=PORT,
            advertised_host=broker.node.host,
            members_min=lambda: 1,
            truncation_allowed=lambda: None,
            catch_up_limit=lambda: None,
            on_fatal=self.fail,
        )
        self.ha.speaks_through(self, self)

    def fail(self, error: BaseException) -> None:
        raise AssertionError("nothing here fails") from error

    async def start(self) -> None:
        await self.ha.start()
        while True:
            await self.poll()
            await asyncio.sleep(self.broker.random.uniform(0.05, 1))

    async def stop(self) -> None:
        await self.ha.stop()

    async def wait_failed(self) -> BaseException:
        return await asyncio.get_running_loop().create_future()

    async def poll(self) -> None:
        known = self.broker.controllers
        if self.broker.cut_off:
            return
        if known.epoch > self.epoch:
            epoch, own_id, master = known.epoch, self.broker.broker_id, known.master
            self.is_master = False
            try:
                if master == own_id:
                    await self.ha.become_master(epoch, own_id, known.members, known.set_epoch)
                else:
                    await self.ha.become_slave(epoch, own_id, master, f"10.0.0.{master}:{PORT}")
            except EpochFenced:
                return
            self.epoch, self.is_master = epoch, master == own_id
        elif known.epoch == self.epoch and self.is_master and self.ha.mastership is not None:
            self.ha.mastership.observe(known.members, known.set_epoch)

    def read_sync_state_set(self) -> None:
        """Nothing to do: the app polls."""

    async def read(self) -> Table:
        await asyncio.sleep(self.broker.random.uniform(0, 0.3))
        if self.broker.cut_off:
            raise ReplicasUnread("cut off")
        return {broker_id: RegisteredReplica(frozenset({f"10.0.0.{broker_id}"})) for broker_id in (1, 2, 3)}

    def alter_sync_state_set(self, alter: Alter) -> None:
        self.broker.node.spawn(self.alter(alter))

    async def alter(self, alter: Alter) -> None:
        chance = self.broker.random
        controllers = self.broker.controllers
        asked = alter.members, alter.master_epoch, alter.set_epoch
        lost, late = chance.random() < 0.3 or self.broker.cut_off, chance.random() < 0.2
        await asyncio.sleep(chance.uniform(0, 0.3))
        if late:
            asyncio.get_running_loop().call_later(chance.uniform(0, 5), controllers.alter, *asked)
        accepted = not lost and not late and controllers.alter(*asked)
        reply_lost = chance.random() < 0.3
        await asyncio.sleep(chance.uniform(0, 0.3))
        outcome: AlterOutcome = Applied(alter.members, alter.set_epoch + 1) if accepted else AlterRefused()
        if self.ha.mastership is not None:
            self.ha.mastership.alter_ended(alter, AlterUnknown() if lost or late or reply_lost else outcome)


class Broker:
    """A machine whose mapped log outlives its processes."""

    def __init__(self, world: World, broker_id: int, controllers: Controllers, chance: random.Random) -> None:
        self.broker_id = broker_id
        self.controllers = controllers
        self.random = chance
        self.cut_off = False
        self.log = MemoryLog(segment_size_bytes=4096)
        self.node = world.node(f"broker-{broker_id}", f"10.0.0.{broker_id}")
        self.start()

    def start(self) -> None:
        self.log._callbacks.clear()
        self.app: App | None = None
        self.node.start(self._make_app)

    def _make_app(self, runtime: Runtime) -> App:
        self.app = App(self, runtime)
        return self.app

    def append(self, count: int) -> None:
        async def put() -> None:
            if self.app is not None and self.app.is_master:
                whole = [record(f"{self.broker_id}/{self.random.random()}", self.random.randint(30, 300))]
                self.log.append(*whole * count)

        if self.node.running:
            self.node.spawn(put())


class Acked:
    """The bytes that any master ever acknowledged."""

    def __init__(self) -> None:
        self.data = b""

    def check(self, broker: Broker) -> None:
        app = broker.app
        if app is None or not app.is_master or not broker.node.running:
            return
        end = app.ha.acked_end()
        content = broker.log.content()
        assert end <= len(content)
        shared = min(end, len(self.data))
        assert content[:shared] == self.data[:shared], f"broker {broker.broker_id} at epoch {app.epoch}"
        if end > shared:
            self.data = content[:end]


@pytest.mark.parametrize("seed", range(1, 7))
def test_acknowledged_data_is_one_chain_under_any_failure(
    seed: int, tally: Callable[[str, int], None]
) -> None:
    chance = random.Random(seed)
    with World(seed) as world:
        controllers, acked = Controllers(), Acked()
        brokers = [Broker(world, broker_id, controllers, chance) for broker_id in (1, 2, 3)]
        elections = 0
        for _ in range(150):
            world.run_for_ms(chance.choice([5, 50, 200, 1_000]))
            broker, other = chance.sample(brokers, 2)
            hosts = broker.node.host, other.node.host
            match chance.choice(EVENTS):
                case "append":
                    for each in brokers:
                        each.append(chance.randint(0, 20))
                case "cut":
                    world.network.cut(*hosts, both=chance.random() < 0.5)
                case "heal":
                    world.network.heal()
                case "reset":
                    world.network.reset(*hosts)
                case "half":
                    world.network.half_open(*hosts)
                case "kill" if broker.node.running:
                    broker.node.kill()
                    broker.start()
                case "pause":
                    broker.node.pause(chance.randint(10, 3_000))
                case "controllers":
                    broker.cut_off = not broker.cut_off
                case "elect":
                    controllers.elect(chance.choice(sorted(controllers.members)))
                    elections += 1
            for each in brokers:
                acked.check(each)
        world.network.heal()
        for each in brokers:
            each.cut_off = False

        def caught_up() -> bool:
            for each in brokers:
                acked.check(each)
            master = brokers[controllers.master - 1]
            return (
                len(controllers.members) == 3
                and master.app is not None
                and master.app.ha.acked_end() == master.log.max_offset()
                and len({each.log.content() for each in brokers}) == 1
                and len({each.app.ha.history for each in brokers if each.app is not None}) == 1
            )

        world.run_until(caught_up, limit_ms=60_000)
        assert brokers[0].log.content().startswith(acked.data)
        tally("seeds", 1)
        tally("elections", elections)
