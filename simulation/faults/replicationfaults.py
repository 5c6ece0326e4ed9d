"""Faults of the network that hit replication: they decide which brokers are notified of a change of role or set, and when.

Invariant: a fault may wait for a moment such as the next election. If that moment does not come before faults end, the fault
never happens."""

from __future__ import annotations

from broker.role.membership import ReplicaRole
from simulation.cluster.looks import broker_on
from simulation.cluster.machines import Machines
from simulation.faults.fault import Fault, Moment
from simulation.kernel.node import Node

LAGGING_MS = (600, 2_500)
SLOW_SLAVE_MS = (400, 900)
SLOW_CONTROLLERS_MS = (300, 900)


class MasterWithoutControllers(Fault):
    """A slave is notified of the next master while the present master still acts as one."""

    name = "master without controllers"

    def strike(self, now: Moment) -> bool:
        master = now.master
        for controller in self.machines.controllers:
            self.network.cut(master.host, controller.host)
        slave = self.random.choice(self.machines.slaves(master))
        if self.random.random() < 0.5:
            self.network.cut(master.host, slave.host)
        else:  # it learns of the next master before it has what this master sent
            self.network.delay(master.host, slave.host, *SLOW_SLAVE_MS)
        return True


class ExpansionWithoutAnswer(Fault):
    """The next time the controllers add brokers to the set, the master does not get their answer, and the new members get
    nothing of the master's log."""

    name = "expansion without an answer"

    def __init__(self, machines: Machines) -> None:
        super().__init__(machines)
        self.planned = 0
        machines.check.on_expanded = self.expanded

    def strike(self, now: Moment) -> bool:
        for controller in self.machines.controllers:
            self.network.delay(now.master.host, controller.host, *SLOW_CONTROLLERS_MS)
        self.machines.kill(self.random.choice(self.machines.slaves(now.master)))
        self.planned += 1
        return True

    def expanded(self, added: frozenset[int], master_id: int) -> None:
        hosts = {look.broker_id: node.host for node in self.machines.brokers if (look := broker_on(node))}
        if self.planned and master_id in hosts:
            self.planned -= 1
            for controller in self.machines.controllers:
                self.network.cut(controller.host, hosts[master_id], both=False)
            for broker_id in sorted(added & hosts.keys()):
                self.network.cut(hosts[broker_id], hosts[master_id])

    def heal(self) -> None:
        self.planned = 0


class HalfOpenSlave(Fault):
    """One slave lags. A little later the other slave forgets its connections with the master, and the master does not
    notice."""

    name = "half-open slave while another lags"
    planned: tuple[int, Node, Node] | None = None
    """(when, the lagging slave, the other slave)."""

    def strike(self, now: Moment) -> bool:
        lagging, forgetful = self.random.sample(self.machines.slaves(now.master), 2)
        self.network.cut(now.master.host, lagging.host)
        at_ms = self.world.now_ms + self.random.randint(*LAGGING_MS)
        self.planned = at_ms, forgetful, now.master
        return True

    def next_step(self) -> None:
        if self.planned is not None and self.world.now_ms >= self.planned[0]:
            _, forgetful, former = self.planned
            self.planned = None
            self.network.half_open(forgetful.host, former.host)

    def heal(self) -> None:
        self.planned = None


class DeposedMaster(Fault):
    """A master is cut off until there is another master. A slave of the new master then reaches, at that master's address, the
    former master, which still believes to be master."""

    name = "deposed master at a new address"
    deposed: Node | None = None

    def strike(self, now: Moment) -> bool:
        self.machines.cut_off(now.master)
        self.deposed = now.master
        return False

    def next_step(self) -> None:
        master = self.machines.master() if self.deposed is not None else None
        if self.deposed is not None and master is not None and master is not self.deposed:
            self.misdirect(self.deposed, master)

    def misdirect(self, former: Node, master: Node) -> None:
        slave = next(node for node in self.machines.slaves(master) if node is not former)
        old, new, follower = broker_on(former), broker_on(master), broker_on(slave)
        if (
            old is None
            or new is None
            or follower is None
            or ReplicaRole.NONE in (old.role, new.role, follower.role)
        ):
            return
        if old.role is not ReplicaRole.MASTER:
            self.deposed = None  # it knows its successor
        elif (
            follower.history.last_epoch() == new.history.last_epoch()
            and follower.broker_id in self.machines.check.members
            and follower.store.confirm_offset() > new.history.entries[-1].start_offset
        ):
            self.deposed = None
            self.network.heal(former.host, slave.host)
            self.network.misdirect(slave.host, master.host, former.host)
            self.network.reset(slave.host, master.host)
            self.count()

    def heal(self) -> None:
        self.deposed = None
