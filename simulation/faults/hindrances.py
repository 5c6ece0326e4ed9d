"""Faults that servers survive: a pause, a clock that jumps, more load than usual.

Invariant: nothing is lost, and no process ends."""

from __future__ import annotations

import random

from simulation.cluster.machines import Machines
from simulation.cluster.members import ClientApp
from simulation.faults.fault import Fault, Moment

PAUSES_MS = (100, 1500, 8000)
CLOCK_JUMP_MS = 3_600_000
BURSTS = (20, 60)
GREAT_BURST = 400
GREAT_MS = (15_000, 40_000)


class Pause(Fault):
    name = "pause"

    def strike(self, now: Moment) -> bool:
        if now.broker.running:
            now.broker.pause(self.random.choice(PAUSES_MS))
            return True
        return False


class ClockJump(Fault):
    name = "clock jump"

    def strike(self, now: Moment) -> bool:
        node = self.random.choice(self.machines.everyone)
        node.skew_ms += self.random.choice((-CLOCK_JUMP_MS, CLOCK_JUMP_MS))
        if node in self.machines.brokers:
            self.machines.skews_ms.append(node.skew_ms)
        return True


class GreatBurst(Fault):
    """Hundreds of sends in flight. An independent fault with its own random generator."""

    name = "great burst of load"

    def __init__(self, machines: Machines) -> None:
        super().__init__(machines)
        self.random = random.Random(f"{machines.world.seed}/bursts")
        self.due_ms: int | None = self.random.randint(*GREAT_MS)

    def next_step(self) -> None:
        client = self.machines.client
        if self.due_ms is not None and self.world.now_ms >= self.due_ms and isinstance(client.app, ClientApp):
            self.due_ms = self.world.now_ms + self.random.randint(*GREAT_MS)
            client.spawn(client.app.burst(GREAT_BURST))
            self.count()

    def heal(self) -> None:
        self.due_ms = None


class BurstOfLoad(Fault):
    name = "burst of load"
    chance = 0.4

    def strike(self, now: Moment) -> bool:
        client = self.machines.client
        if isinstance(client.app, ClientApp):
            client.spawn(client.app.burst(self.random.choice(BURSTS)))
            return True
        return False
