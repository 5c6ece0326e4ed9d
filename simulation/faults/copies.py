"""A copy of a broker's store is started at another address while that broker runs.

Invariant B2: while the broker's registered process lives, the copy is not registered and has no role. The copy is stopped when
controllers consider the broker dead, because they would then rightly accept the copy as that broker."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from broker.app import BrokerApp
from broker.resync import storeaside
from broker.role.membership import ReplicaRole
from mqruntime.runtime import Runtime
from simulation.cluster.looks import broker_on, started_broker
from simulation.cluster.machines import Machines
from simulation.faults.fault import Fault
from simulation.kernel.images import image_of, restore
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation

FIRST_MS = (4_000, 10_000)
RUNS_MS = (6_000, 15_000)
BETWEEN_MS = (4_000, 12_000)


@dataclass
class Running:
    """A copy of the store of `original` that runs, with the broker id of `original`."""

    original: Node
    incarnation: int
    broker_id: int
    until_ms: int


class Copies(Fault):
    """An independent fault with its own random generator."""

    name = "copy of an identity"

    def __init__(
        self, machines: Machines, node: Node, app_at: Callable[[str], Callable[[Runtime], BrokerApp]]
    ) -> None:
        """The copy runs on `node`, as the broker that `app_at` makes for its host."""
        super().__init__(machines)
        self.node = node
        self.app_at = app_at
        self.random = random.Random(f"{machines.world.seed}/copies")
        self.due_ms: int | None = self.random.randint(*FIRST_MS)
        self.running: Running | None = None
        self.was_alive = False
        """Whether controllers got heartbeats of the original during the whole time in which its copy has been running."""
        machines.world.loop.after_step.append(self.listen)

    def listen(self) -> None:
        """Note if the controllers stop getting the original's heartbeats, even for a moment, because its copy may then rightly
        register."""
        if self.running is not None and self.was_alive:
            self.was_alive = self.lives(self.running)

    def next_step(self) -> None:
        """Raises Violation."""
        if self.running is not None:
            self.look(self.running)
        elif self.due_ms is not None and self.world.now_ms >= self.due_ms:
            self.due_ms = self.world.now_ms + self.random.randint(*BETWEEN_MS)
            self.begin(self.random.choice(self.machines.brokers))

    def begin(self, original: Node) -> None:
        look = broker_on(original)
        if look is None or look.broker_id is None or not self.is_alive(look.broker_id):
            return
        if look.role is ReplicaRole.NONE or self.node.serving:
            return
        if original.disk.content(storeaside.FILE) is not None:
            return  # an operator requested a resync: the copy would begin again, too, with a new id
        until_ms = self.world.now_ms + self.random.randint(*RUNS_MS)
        self.running = Running(original, original.incarnation, look.broker_id, until_ms)
        self.was_alive = True
        restore(self.node.disk, image_of(original.disk))
        self.node.start(self.app_at(self.node.host))
        self.count()

    def look(self, running: Running) -> None:
        original = running.original
        app = started_broker(self.node)
        if app is not None and (app.membership.registered or app.membership.role is not ReplicaRole.NONE):
            if self.was_alive:
                raise Violation(
                    "B2",
                    f"{self.node.host} is registered as broker {running.broker_id}, and that of {original.name} lives",
                )
            self.machines.check.forgetful.add(original.name)
        if not self.was_alive or self.world.now_ms >= running.until_ms or not self.node.running:
            self.stop()

    def lives(self, running: Running) -> bool:
        original = running.original
        same = original.running and original.incarnation == running.incarnation
        return same and self.is_alive(running.broker_id)

    def is_alive(self, broker_id: int) -> bool:
        """Whether the leading controller receives that broker's heartbeats."""
        leading = [look for look in self.machines.controller_looks() if look.raft.is_active]
        return len(leading) == 1 and leading[0].takes_for_alive(broker_id)

    def stop(self) -> None:
        self.running = None
        self.node.kill()

    def heal(self) -> None:
        self.due_ms = None
        self.stop()
