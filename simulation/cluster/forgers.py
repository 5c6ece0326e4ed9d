"""A host that says of the set's roles what only controllers and members may say, with ids, addresses and epochs that there are.

Invariant: it sends whole requests that can be read, to brokers, and keeps to no protocol besides. Whoever leads and is counted
follows from the controllers alone (M1, M2, S, C), and nobody ends."""

from __future__ import annotations

import random
from collections.abc import Iterator

from controller.state import SyncState
from remoting.command import RemotingCommand
from simulation.cluster.fault import Fault
from simulation.cluster.hostileframes import STAYS_MS, say
from simulation.cluster.looks import broker_on
from simulation.cluster.machines import Machines
from simulation.cluster.members import BROKER_PORT, BROKER_SET
from simulation.hostile import roles
from simulation.hostile.frames import whole
from simulation.kernel.node import Node

FIRST_MS = (2_000, 6_000)
BETWEEN_MS = (200, 2_000)
AT_ONCE = (1, 12)
FLOOD = 300
HAND_OVERS = 0.3
"""So often a broker is to hold messages back, else it hears of a master."""
FLOODS = 0.05
"""So often the same is said so many times at once."""


class Forger(Fault):
    """Comes of itself, from a generator of its own, and from a host of its own."""

    name = "forged roles"

    def __init__(self, machines: Machines, node: Node) -> None:
        super().__init__(machines)
        self.node = node
        self.random = random.Random(f"{machines.world.seed}/forged roles")
        self.due_ms: int | None = self.random.randint(*FIRST_MS)

    def next_step(self) -> None:
        if self.due_ms is None or self.world.now_ms < self.due_ms:
            return
        self.due_ms = self.world.now_ms + self.random.randint(*BETWEEN_MS)
        target = self.random.choice(self.machines.brokers)
        said = list(self.requests(target))
        for _ in range(self.random.randint(*AT_ONCE) if said else 0):
            data = whole(self.random.choice(said))
            times = FLOOD if self.random.random() < FLOODS else 1
            self.node.spawn(say(target.host, BROKER_PORT, data * times, self.random.choice(STAYS_MS)))
            self.count()

    def heal(self) -> None:
        self.due_ms = None

    def requests(self, target: Node) -> Iterator[RemotingCommand]:
        """To a broker that runs: of the set as it and the controllers have it now."""
        look = broker_on(target)
        if look is None:
            return
        looks = [(node, broker_on(node)) for node in self.machines.brokers]
        addresses = {
            found.broker_id: f"{node.host}:{BROKER_PORT}"
            for node, found in looks
            if found is not None and found.broker_id is not None
        }
        states = (controller.state or SyncState() for controller in self.machines.controller_looks())
        known = max(states, key=lambda state: state.set_epoch, default=SyncState())
        epoch = max(look.epoch, known.master_epoch)
        if self.random.random() < HAND_OVERS:
            yield from roles.hand_overs(BROKER_SET, addresses, epoch)
        else:
            yield from roles.notifications(addresses, epoch, known.set_epoch)
