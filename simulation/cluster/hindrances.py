"""Faults that servers live through: a pause, a clock that jumps, more load than usual.

Invariant: nothing is lost, and nobody ends for it."""

from __future__ import annotations

from simulation.cluster.fault import Fault, Moment
from simulation.cluster.members import ClientApp

PAUSES_MS = (100, 1500, 8000)
CLOCK_JUMP_MS = 3_600_000
BURSTS = (20, 60)


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


class BurstOfLoad(Fault):
    name = "burst of load"
    chance = 0.4

    def strike(self, now: Moment) -> bool:
        client = self.machines.client
        if isinstance(client.app, ClientApp):
            client.spawn(client.app.burst(self.random.choice(BURSTS)))
            return True
        return False
