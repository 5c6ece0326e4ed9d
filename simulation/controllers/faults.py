"""Faults of controllers and brokers: deaths, pauses, cuts of the network, slow disks, requests that come late.

Invariant: all faults are healed at the end. A killed process comes back by itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Protocol

from remoting.codes import RequestCode
from simulation.controllers.asks import Ask
from simulation.controllers.check import ControllerCheck
from simulation.controllers.scriptedbroker import ScriptedBroker
from simulation.kernel.node import Node
from simulation.kernel.world import World

CLOCK_JUMP_MS = 3_600_000
AMONG_CONTROLLERS = frozenset({"leader without fellows", "held request", "leaders one after the other"})
"""Faults that have no effect on a single controller."""


class Played(Protocol):
    """The nodes of the world, which are the possible victims. `sets` holds the brokers of each set."""

    world: World
    random: Random
    checker: ControllerCheck
    controllers: list[Node]
    brokers: list[Node]
    sets: dict[str, list[Node]]

    def leader(self) -> Node | None: ...

    def master(self, broker_name: str) -> Node | None: ...

    def living(self, broker_name: str) -> list[tuple[Node, ScriptedBroker]]: ...

    def start_again(self, node: Node) -> None: ...

    def read_at(self, controller: Node, broker_name: str) -> None: ...


class Faults:
    """The faults of one run. Their kinds, and how often they strike, are drawn from the seed."""

    def __init__(self, cluster: Played) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.network = cluster.world.network
        self.random = cluster.random
        self.done: Counter[str] = Counter()
        self.pace_s = self.random.choice((1.5, 4, 4, 8))
        every: dict[str, Callable[[], Awaitable[None]]] = {
            "bounce": self.bounce_one,
            "pause": self.pause,
            "cut": self.cut,
            "master and leader": self.master_and_leader,
            "two brokers at once": self.two_brokers,
            "leader without fellows": self.leader_without_fellows,
            "frozen leader": self.frozen_leader,
            "frozen controllers": self.frozen_controllers,
            "held request": self.held_request,
            "disk stall": self.disk_stall,
            "slow followers": self.slow_followers,
            "clock jump": self.clock_jump,
            "reset": self.reset,
            "half-open": self.half_open,
            "a broker of each set": self.one_of_each_set,
            "leaders one after the other": self.leaders_in_turn,
        }
        some = [name for name in every if self.random.random() < 0.6]
        if self.is_alone:
            some = [*(name for name in some if name not in AMONG_CONTROLLERS), "frozen controllers"]
        self.kinds = {name: every[name] for name in some or ["bounce"]}

    @property
    def is_alone(self) -> bool:
        """Whether there is only one controller."""
        return len(self.cluster.controllers) == 1

    async def strike_for(self, for_ms: int) -> None:
        """Cause one fault after the other for this time, and then heal everything. Nodes that are down may come back only some
        time after that."""
        end_ms = self.world.now_ms + for_ms
        while self.world.now_ms < end_ms:
            await asyncio.sleep(self.random.uniform(0.2, self.pace_s))
            name = self.random.choice(list(self.kinds))
            self.done[name] += 1
            await self.kinds[name]()
        self.network.heal()
        self.network.usual_delays()

    # Victims

    def anyone(self) -> Node:
        """A victim, which is a controller as often as a broker."""
        return self.random.choice(
            self.cluster.controllers if self.random.random() < 0.5 else self.cluster.brokers
        )

    def some_set(self) -> str:
        return self.random.choice(list(self.cluster.sets))

    # Faults

    async def bounce_one(self) -> None:
        await self.bounce(self.anyone(), power_cut=self.random.random() < 0.3)

    async def bounce(self, *nodes: Node, power_cut: bool = False) -> None:
        """Two servers die one shortly after the other."""
        killed = [node for node in nodes if node.running]
        for node in killed:
            node.kill(power_cut=power_cut)
            await asyncio.sleep(self.random.choice((0, 0, self.random.uniform(0.001, 0.1))))
        await asyncio.sleep(self.random.choice((self.random.uniform(0.01, 1), self.random.uniform(1, 12))))
        for node in killed:
            if not node.running:
                self.cluster.start_again(node)

    async def pause(self) -> None:
        node = self.anyone()
        if node.running:
            node.pause(self.random.randint(100, 15_000))

    async def cut(self) -> None:
        node = self.anyone()
        others = [other for other in self.cluster.controllers + self.cluster.brokers if other is not node]
        both = self.random.random() < 0.7
        for other in self.random.sample(others, self.random.randint(1, len(others))):
            self.network.cut(node.host, other.host, both=both)
        await asyncio.sleep(self.random.uniform(0.1, 14))
        self.network.heal()

    async def master_and_leader(self) -> None:
        victims = [node for node in (self.cluster.master(self.some_set()), self.cluster.leader()) if node]
        await self.bounce(*victims)

    async def two_brokers(self) -> None:
        """A master and another broker of its set die within 100 ms."""
        name = self.some_set()
        master = self.cluster.master(name)
        others = [node for node in self.cluster.sets[name] if node is not master]
        victims = [node for node in (master, self.random.choice(others)) if node]
        await self.bounce(*victims, power_cut=self.random.random() < 0.2)

    async def one_of_each_set(self) -> None:
        """One broker of each set dies, as if one machine ran them all."""
        number = self.random.randrange(min(map(len, self.cluster.sets.values())))
        await self.bounce(*(nodes[number] for nodes in self.cluster.sets.values()))

    def _cut_off(self, leader: Node) -> None:
        for other in self.cluster.controllers:
            if other is not leader:
                self.network.cut(leader.host, other.host)

    async def leader_without_fellows(self) -> None:
        """The leader is cut off from other controllers, but brokers and operators still reach it. They ask it while another
        controller leads and a master has changed."""
        leader = self.cluster.leader()
        if leader is None:
            return
        self._cut_off(leader)
        await self._until(lambda: self.cluster.leader() not in (None, leader))
        name = self.some_set()
        master = self.cluster.master(name)
        if master is not None:
            master.kill()
        for _ in range(10):
            await asyncio.sleep(0.03)
            self.cluster.read_at(leader, name)
        await asyncio.sleep(self.random.uniform(0.1, 4))
        if master is not None and not master.running:
            self.cluster.start_again(master)
        self.network.heal()

    async def frozen_leader(self) -> None:
        """The leader is frozen just long enough for another controller to lead, while a master dies."""
        leader, master = self.cluster.leader(), self.cluster.master(self.some_set())
        if leader is not None:
            leader.pause(self.random.randint(1_000, 6_000))
            if master is not None and self.random.random() < 0.5:
                await self.bounce(master)

    async def frozen_controllers(self) -> None:
        """All controllers are frozen, perhaps for longer than brokers may be silent, and perhaps brokers too."""
        ms = self.random.choice((2_000, 11_000, 20_000))
        frozen = list(self.cluster.controllers)
        if self.random.random() < 0.5:
            frozen += self.cluster.brokers
        for node in frozen:
            if node.running:
                node.pause(ms)
        await asyncio.sleep(ms / 1000)

    async def leaders_in_turn(self) -> None:
        for _ in range(self.random.randint(2, 3)):
            leader = self.cluster.leader()
            if leader is not None:
                await self.bounce(leader)
            await asyncio.sleep(self.random.uniform(0.1, 3))

    async def held_request(self) -> None:
        """A master's request to add a member is held on its way to the leader. Another controller leads, gets no heartbeat of
        that member, and rejects the same request. Then the first controller leads again, and the held request arrives."""
        first, name = self.cluster.leader(), self.some_set()
        master = self.cluster.master(name)
        if first is None or master is None:
            return
        asks: list[Ask] = []
        check = self.cluster.checker
        others = [node for node in self.cluster.controllers if node is not first]

        def hold(ask: Ask) -> None:
            mine = ask.broker_name == name and ask.who.startswith(master.host)
            if not mine or ask.code != RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
                return
            entering = ask.members - check.state(name).members
            if not asks and entering:
                self.network.cut(master.host, first.host, both=False)
                for node, broker in self.cluster.living(name):
                    if broker.broker_id in entering:
                        for other in others:
                            self.network.reset(node.host, other.host)
                            self.network.cut(node.host, other.host)
            if asks or entering:
                asks.append(ask)

        check.on_sent = hold
        await self._until(lambda: bool(asks), 300)
        if asks:
            self._cut_off(first)
            await self._until(lambda: self.cluster.leader() not in (None, first), 500)
            await self._until(lambda: any(not ask.open for ask in asks[1:]), 500)
            await self._lead_again(first)
        check.on_sent = lambda _ask: None
        self.network.heal()

    async def _lead_again(self, first: Node) -> None:
        for other in self.cluster.controllers:
            self.network.heal(first.host, other.host)
        for _ in range(4):
            second = self.cluster.leader()
            if second is first:
                return
            if second is not None:
                self._cut_off(second)
                await self._until(lambda now=second: self.cluster.leader() not in (None, now), 300)  # type: ignore[misc]
                for other in self.cluster.controllers:
                    self.network.heal(second.host, other.host)

    async def _until(self, holds: Callable[[], bool], centiseconds: int = 1_000) -> None:
        for _ in range(centiseconds):
            await asyncio.sleep(0.01)
            if holds():
                return

    async def disk_stall(self) -> None:
        for node in self.random.sample(
            self.cluster.controllers, min(self.random.randint(1, 2), len(self.cluster.controllers))
        ):
            node.disk.stall(self.random.choice((100, 400, 1_000, 4_000)))

    async def slow_followers(self) -> None:
        """Followers are so slow that proposals stay uncommitted for long. If timers are long, they are not so slow that the
        leader steps down. Meanwhile a master dies."""
        leader, master = self.cluster.leader(), self.cluster.master(self.some_set())
        ms = self.random.randint(2_500, 4_500)
        for node in self.cluster.controllers:
            if node is not leader:
                node.disk.stall(ms)
        if master is not None and self.random.random() < 0.7:
            await self.bounce(master)
        await asyncio.sleep(ms / 1000)

    async def clock_jump(self) -> None:
        """A wall clock jumps. No decision may depend on wall clocks."""
        self.random.choice(self.cluster.controllers).skew_ms += self.random.randint(
            -CLOCK_JUMP_MS, CLOCK_JUMP_MS
        )

    async def reset(self) -> None:
        self.network.reset(self.anyone().host, self.random.choice(self.cluster.controllers).host)

    async def half_open(self) -> None:
        """A broker forgets its connection and opens another. The controller notices the end of the first connection only
        later."""
        broker = self.random.choice(self.cluster.brokers)
        self.network.half_open(broker.host, self.random.choice(self.cluster.controllers).host)
