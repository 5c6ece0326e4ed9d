"""Faults that end processes.

Invariant: a killed or stopped process comes back by itself."""

from __future__ import annotations

import random
from collections.abc import Callable

from simulation.cluster.machines import Machines
from simulation.faults.fault import Fault, Moment, NotNow
from simulation.kernel.node import Node

STOPPED_MS = 4000
HUNG_MS = 8_000
ALL_MS = 10_000, 25_000
LATER_MS = (1, 200, 2_000, 4_000)


class Kill(Fault):
    """Kills the nodes that `victims` returns, all at once."""

    def __init__(
        self,
        machines: Machines,
        name: str,
        victims: Callable[[Moment], list[Node]],
        *,
        power_cut: bool = False,
    ) -> None:
        super().__init__(machines, name)
        self.victims = victims
        self.power_cut = power_cut

    def strike(self, now: Moment) -> bool:
        for node in self.victims(now):
            self.machines.kill(node, power_cut=self.power_cut)
        return True


class KillAfterTruncation(Fault):
    """The next broker that truncates its log dies before it writes at that place again."""

    name = "kill after truncation"

    def __init__(self, machines: Machines) -> None:
        super().__init__(machines)
        self.planned = 0
        machines.check.on_truncated = self.truncated

    def strike(self, now: Moment) -> bool:
        self.planned += 1
        return True

    def truncated(self, name: str) -> None:
        if self.planned:
            self.planned -= 1
            self.machines.kill(self.world.nodes[name])

    def heal(self) -> None:
        self.planned = 0


class Stop(Fault):
    """SIGTERM: the app stops by itself, unless a fault kills it first."""

    name = "stop"

    def strike(self, now: Moment) -> bool:
        if now.broker.running and now.broker.app is not None:
            now.broker.leave()
            self.machines.restart_at_ms[now.broker.name] = self.world.now_ms + STOPPED_MS
        return now.broker.running


class PowerCut(Fault):
    """A broker loses unsynced data. This does not happen while another broker is down, because under the contract one broker
    may lose its memory only if the others have theirs."""

    name = "power cut"

    def strike(self, now: Moment) -> bool:
        node = now.broker
        if now.acting_master is not None and self.random.random() < 0.5:
            node = now.acting_master
        broker_id = self.machines.can_lose(node)
        if broker_id is not None:
            if self.random.random() < 0.5:  # the kernel ends no connection
                self.machines.cut_off(node)
            self.machines.kill(node)
            self.machines.losing[node.name] = broker_id, lambda: self.forget(node)
        return False

    def forget(self, node: Node) -> None:
        node.kill(power_cut=True)
        self.machines.lost_power.add(node.name)
        self.count()


class SuddenPowerCut(Fault):
    """A broker, in the set or not, loses unsynced data, even if other brokers are down. Contract C tolerates one such loss at a
    time."""

    name = "sudden power cut"
    chance = 0.8

    def strike(self, now: Moment) -> bool:
        node = now.broker
        if now.acting_master is not None and self.random.random() < 0.6:
            node = now.acting_master
        if self.node is not None or not self.machines.can_forget(node):
            raise NotNow
        if self.random.random() < 0.7:  # then more data is unsynced
            node.disk.stall(HUNG_MS)
        if self.random.random() < 0.6:
            for other in self.machines.slaves(node):
                self.machines.kill(other)
        self.at_ms = self.world.now_ms + self.random.choice(LATER_MS)
        self.node = node
        return False

    at_ms = 0
    node: Node | None = None

    def next_step(self) -> None:
        node = self.node
        if node is not None and self.world.now_ms >= self.at_ms:
            self.node = None
            if self.machines.can_forget(node):
                self.machines.check.forgetful.add(node.name)
                self.machines.kill(node, power_cut=True)
                node.disk.stall(0)
                self.count()

    def heal(self) -> None:
        self.node = None


class AllLosePower(Fault):
    """All brokers lose unsynced data at once while their disks are slow, which contract D tolerates. An independent fault with
    its own random generator."""

    name = "all lose power"

    def __init__(self, machines: Machines) -> None:
        super().__init__(machines)
        self.random = random.Random(f"{machines.world.seed}/power")
        self.due_ms: int | None = self.random.randint(*ALL_MS)
        self.at_ms: int | None = None

    def next_step(self) -> None:
        now_ms = self.world.now_ms
        if self.at_ms is not None and now_ms >= self.at_ms:
            self.at_ms = None
            if self.none_is_damaged():
                self.cut_power()
        elif self.due_ms is not None and now_ms >= self.due_ms:
            self.due_ms = now_ms + self.random.randint(*ALL_MS)
            self.at_ms = now_ms + self.random.choice(LATER_MS)
            for node in self.machines.brokers:
                if self.random.random() < 0.5 and self.none_is_damaged():
                    node.disk.stall(HUNG_MS)

    def none_is_damaged(self) -> bool:
        """Whether no disk has lost, or is to lose, more than a power cut takes."""
        on = self.machines
        failed = any(node.disk.failures["sync"] for node in on.brokers) or on.doubtful_disks
        return not (failed or on.losing or on.damaged.flipped or on.damaged.where or on.check.forgetful)

    def cut_power(self) -> None:
        for node in self.machines.brokers:
            self.machines.kill(node, power_cut=True)
            node.disk.stall(0)
        self.count()

    def heal(self) -> None:
        self.due_ms = self.at_ms = None


class TwoDeaths(Fault):
    """The master dies, and a moment later a slave, perhaps the one that was elected meanwhile."""

    name = "two deaths within a moment"
    at_ms = 0
    victim: Node | None = None

    def strike(self, now: Moment) -> bool:
        self.victim = self.random.choice(self.machines.slaves(now.master))
        self.at_ms = self.world.now_ms + self.random.randint(10, 100)
        self.machines.kill(now.master)
        return False

    def next_step(self) -> None:
        if self.victim is not None and self.world.now_ms >= self.at_ms:
            self.machines.kill(self.victim)
            self.victim = None
            self.count()

    def heal(self) -> None:
        self.victim = None
