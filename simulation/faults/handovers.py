"""Planned switchovers: an operator elects another broker, or the master is stopped, while clients send and ask for routes only
every 30 s. While faults are on, another fault follows each switchover. When faults are over, none does.

Invariant H1: on a cluster without faults, no client gets an error because of a switchover. A message that the former master
forwards is stored once; this is judged at the end, as for all messages."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from localcluster.history import SendAttempt, SendOutcome
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from simulation.cluster.looks import CLUSTER, broker_on
from simulation.cluster.machines import Machines
from simulation.cluster.members import BROKER_SET, CONTROLLERS, ClientApp
from simulation.faults.fault import Fault
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.violation import Violation

FIRST_MS = (15_000, 50_000)
BETWEEN_MS = (6_000, 25_000)
TROUBLE_AFTER_MS, BEHIND_BURST_MS = (0, 400), (1, 8)
BURST = 40
PAUSE_MS = 1_500
WATCHED_MS = 4_000
CALM_MS, CALM_LIMIT_MS = 3_000, 90_000
"""The time that a cluster needs to become calm. A client may still follow a route from before the last fault. A broker that
was stopping when faults ended forwards requests for 35 s, and may come back with a log that ends below the beginning of the
others' logs."""


class HandOverInTrouble(Fault):
    """A member is elected, and a moment later a fault hits it or the former master. An independent fault with its own random
    generator, so that it changes no other fault of a seed."""

    name = "hand-over in trouble"

    def __init__(self, machines: Machines, *, on: bool) -> None:
        super().__init__(machines)
        self.random = random.Random(f"{machines.world.seed}/hand-over in trouble")
        self.due_ms = self.random.randint(*FIRST_MS) if on else None

    def next_step(self) -> None:
        now_ms, master = self.world.now_ms, self.machines.master()
        if self.due_ms is not None and now_ms >= self.due_ms and master is not None:
            self.due_ms = now_ms + self.random.randint(*BETWEEN_MS)
            self.begin(master, self.random.choice(self.machines.slaves(master)))

    def begin(self, former: Node, successor: Node) -> None:
        chosen = broker_on(successor)
        if chosen is None or chosen.broker_id is None or chosen.broker_id not in self.machines.check.members:
            return
        elect(self.machines, chosen.broker_id)
        self.count()
        trouble = self.random.choice(
            (
                lambda: self.network.reset(former.host, successor.host),
                lambda: self.network.reset(former.host, successor.host),
                lambda: self.network.cut(former.host, successor.host),
                lambda: self.network.cut(successor.host, former.host, both=False),
                lambda: self.machines.kill(successor),
                lambda: self.machines.kill(former),
                lambda: successor.pause(PAUSE_MS) if successor.running else None,
                lambda: former.pause(PAUSE_MS) if former.running else None,
            )
        )
        after_ms, behind_ms = self.random.randint(*TROUBLE_AFTER_MS), self.random.randint(*BEHIND_BURST_MS)
        self.machines.client.spawn(self.strike_under_load(trouble, after_ms, behind_ms))

    async def strike_under_load(self, trouble: Callable[[], object], after_ms: int, behind_ms: int) -> None:
        """Strike while many messages are on their way."""
        await asyncio.sleep(after_ms / 1000)
        app = self.machines.client.app
        if self.due_ms is None or not isinstance(app, ClientApp):
            return
        self.machines.client.spawn(app.burst(BURST))
        await asyncio.sleep(behind_ms / 1000)
        trouble()

    def heal(self) -> None:
        self.due_ms = None


class CleanHandOvers:
    """Switchovers for a cluster that is whole and without a fault under way."""

    def __init__(self, machines: Machines, seed: int) -> None:
        self.machines = machines
        self.random = random.Random(f"{seed}/hand-overs")

    def hold(self, app: ClientApp, whole: Callable[[], bool]) -> None:
        """Switch over once, on a cluster that is `whole` and after the client has had no error for a while. Raises
        Violation."""
        world, attempts = self.machines.world, app.load.attempts
        limit_ms = world.now_ms + CALM_LIMIT_MS
        while not (self.unnoticed(attempts, CALM_MS) and whole() and not self.hangs()):
            if world.now_ms > limit_ms:
                raise Violation(
                    "V2",
                    f"expected {CALM_MS} ms without a rejection within {CALM_LIMIT_MS} ms after all faults",
                )
        former = self.machines.master()
        assert former is not None, "a whole cluster has a master"
        epoch = self.machines.check.newest[0]
        if self.random.random() < 0.5:
            self.machines.done["clean hand-over"] += 1
            others = [look for node in self.machines.slaves(former) if (look := broker_on(node)) is not None]
            elect(self.machines, self.random.choice([look.broker_id for look in others if look.broker_id]))
        else:
            self.machines.done["clean stop of a master"] += 1
            assert former.app is not None
            former.leave()
        if not self.unnoticed(attempts, WATCHED_MS):
            bad = next(each for each in reversed(attempts) if each.outcome is not SendOutcome.ACKNOWLEDGED)
            raise Violation(
                "H1", f"a client noticed a switchover, expected only OK, seen {bad.outcome.value}: {bad.why}"
            )
        if self.machines.check.newest[0] == epoch:
            raise Violation("H1", f"no switchover from {former.name} within {WATCHED_MS} ms")

    def hangs(self) -> bool:
        return any(node.disk.stalled for node in self.machines.servers)

    def unnoticed(self, attempts: list[SendAttempt], for_ms: int) -> bool:
        """Whether some attempts end within this time, and all of these are acknowledged."""
        before = len(attempts)
        self.machines.world.run_for_ms(for_ms)
        return {attempt.outcome for attempt in attempts[before:]} == {SendOutcome.ACKNOWLEDGED}


def elect(machines: Machines, broker_id: int) -> None:
    """An operator on the client's machine elects the broker."""
    client = machines.client

    async def designate() -> None:
        admin = AdminClient(SimulatedClock(client), signer=machines.signer)
        try:
            await admin.elect_master(CONTROLLERS, CLUSTER, BROKER_SET, broker_id)
        except AdminError:
            return  # the leader may have changed
        finally:
            await admin.close()

    client.spawn(designate())
