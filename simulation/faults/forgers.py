"""A host that is no member of the cluster sends messages about roles, with existing ids, addresses and epochs. Only controllers
and members may send such messages.

Invariant: the host sends complete requests that can be parsed, but keeps no other rule of the protocol. Only the controllers'
own decisions determine the master and the members (rules M1, M2, S and C of the checks), and no process ends."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from controller.state import SyncState
from remoting.command import RemotingCommand
from simulation.cluster.looks import broker_on, controller_app
from simulation.cluster.machines import Machines
from simulation.cluster.members import BROKER_PORT, BROKER_SET, CONTROLLER_PORT
from simulation.faults.fault import Fault
from simulation.faults.hostileframes import STAYS_MS, say
from simulation.hostile import roles
from simulation.hostile.frames import whole
from simulation.kernel.node import Node
from simulation.kernel.world import World

NAME, PROCESSES = "forged roles", "forged process"
FIRST_MS = (2_000, 6_000)
BETWEEN_MS = (200, 2_000)
AT_ONCE = (1, 12)
FLOOD = 300
HAND_OVERS = 0.3
"""The chance that a broker is asked to hold messages back. Otherwise it is notified of a master."""
FLOODS = 0.05
"""The chance that the same message is sent this many times at once."""


class RoleForger:
    """Forges from a separate host, with its own random generator. `said(target)` is the set as `target`, one of `brokers`, and
    its controllers know it: addresses by broker id, master epoch and set epoch. None if they do not know `target`."""

    def __init__(
        self,
        world: World,
        node: Node,
        brokers: Sequence[Node],
        known: Callable[[Node], tuple[Mapping[int, str], int, int] | None],
        done: Counter[str],
    ) -> None:
        self.world = world
        self.node = node
        self.random = random.Random(f"{world.seed}/forged roles")
        self.due_ms: int | None = self.random.randint(*FIRST_MS)
        self._brokers = brokers
        self._known = known
        self._done = done

    def next_step(self) -> None:
        """Called often."""
        if self.due_ms is None or self.world.now_ms < self.due_ms:
            return
        self.due_ms = self.world.now_ms + self.random.randint(*BETWEEN_MS)
        target = self.random.choice(self._brokers)
        said = list(self.requests(target))
        for _ in range(self.random.randint(*AT_ONCE) if said else 0):
            data = whole(self.random.choice(said))
            times = FLOOD if self.random.random() < FLOODS else 1
            self.node.spawn(say(target.host, BROKER_PORT, data * times, self.random.choice(STAYS_MS)))
            self._done[NAME] += 1

    def heal(self) -> None:
        self.due_ms = None

    def requests(self, target: Node) -> Iterator[RemotingCommand]:
        """The forged requests to a broker that runs."""
        known = self._known(target)
        if known is None:
            return
        addresses, epoch, set_epoch = known
        if self.random.random() < HAND_OVERS:
            yield from roles.hand_overs(BROKER_SET, addresses, epoch)
        else:
            yield from roles.notifications(addresses, epoch, set_epoch)


def is_paused(node: Node) -> bool:
    """Whether the node is paused. A paused node would keep every connection of the forger until it runs again, and these would
    be more than the permitted number."""
    return node.process is not None and node.process.paused


class Forger(Fault):
    """The forger in a set under controllers. Controllers also get registrations of processes that do not exist, for brokers of
    the set."""

    name = NAME

    def __init__(self, machines: Machines, node: Node) -> None:
        super().__init__(machines)
        self.node = node
        self.forger = RoleForger(machines.world, node, machines.brokers, self.known, machines.done)
        self.random = random.Random(f"{machines.world.seed}/forged processes")
        self.due_ms: int | None = self.random.randint(*FIRST_MS)

    def next_step(self) -> None:
        self.forger.next_step()
        if self.due_ms is None or self.world.now_ms < self.due_ms:
            return
        self.due_ms = self.world.now_ms + self.random.randint(*BETWEEN_MS)
        target = self.random.choice(self.machines.controllers)
        said = [] if is_paused(target) else list(roles.registrations(BROKER_SET, self.processes()))
        for _ in range(self.random.randint(*AT_ONCE) if said else 0):
            data = whole(self.random.choice(said))
            self.node.spawn(say(target.host, CONTROLLER_PORT, data, self.random.choice(STAYS_MS)))
            self.machines.done[PROCESSES] += 1

    def heal(self) -> None:
        self.forger.heal()
        self.due_ms = None

    def processes(self) -> dict[int, tuple[str, int, int]]:
        """The registered processes: id -> the address and the numbers with which real brokers register."""
        apps = [app for node in self.machines.controllers if (app := controller_app(node)) is not None]
        known = [each[0] for app in apps if (each := app.state.known(BROKER_SET)) is not None]
        return {
            broker_id: (replica.address, replica.start_number, replica.incarnation)
            for replicas in known
            for broker_id, replica in replicas.by_id.items()
            if replica.says_code
        }

    def known(self, target: Node) -> tuple[Mapping[int, str], int, int] | None:
        look = broker_on(target)
        if look is None or is_paused(target):
            return None
        looks = [(node, broker_on(node)) for node in self.machines.brokers]
        addresses = {
            found.broker_id: f"{node.host}:{BROKER_PORT}"
            for node, found in looks
            if found is not None and found.broker_id is not None
        }
        states = (controller.state or SyncState() for controller in self.machines.controller_looks())
        known = max(states, key=lambda state: state.set_epoch, default=SyncState())
        return addresses, max(look.epoch, known.master_epoch), known.set_epoch
