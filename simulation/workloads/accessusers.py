"""Runs the clients of simulation.workloads.accessclients against a cluster under controllers, independently of its faults."""

from __future__ import annotations

import random
from collections.abc import Sequence

from broker.role.membership import ReplicaRole
from simulation.checkers.accesscheck import Leading
from simulation.checkers.service import runs_well
from simulation.cluster.looks import BrokerLook
from simulation.cluster.machines import Machines
from simulation.cluster.members import BROKER_PORT, BROKER_SET
from simulation.faults.fault import Fault
from simulation.faults.handovers import elect
from simulation.kernel.node import Node
from simulation.workloads.accessclients import NAME, AccessClients


class AccessUsers(Fault):
    """`others` are nodes on which further brokers of the set may run."""

    name = NAME

    def __init__(self, machines: Machines, others: Sequence[Node]) -> None:
        super().__init__(machines)
        self.random = random.Random(f"{machines.world.seed}/access users")
        self.slaves_serve = self.random.random() < 0.5
        targets = [*machines.brokers, *machines.learners, *others]
        self.clients = AccessClients(
            machines.world, lambda: targets, BROKER_PORT, BROKER_SET,
            master=machines.master, calm=self.calm, kill=machines.kill, hand_over=self.hand_over, done=machines.done,
        )  # fmt: skip

    def settings(self) -> dict[str, object]:
        """Additional settings of brokers. In half of the seeds slaves serve readers, too."""
        return {"slaveReadEnable": self.slaves_serve}

    def next_step(self) -> None:
        """Raises Violation."""
        self.clients.next_step(self.machines.broker_looks())

    def heal(self) -> None:
        self.clients.heal()

    def hand_over(self) -> None:
        """An operator elects a member of the set that is not known to be missing anything."""
        forgetful = self.machines.check.forgetful
        members = [
            look.broker_id
            for look in self.machines.broker_looks()
            if look.broker_id in self.machines.check.members
            and not look.may_miss
            and look.name not in forgetful
        ]
        if members:
            elect(self.machines, self.random.choice(members))

    def calm(self) -> Leading | None:
        """The master, if nothing is broken and all brokers are members of the set under it."""
        machines = self.machines
        node = machines.master()
        if node is None or not machines.world.network.is_whole() or not all(map(runs_well, machines.servers)):
            return None
        looks = machines.broker_looks()
        master = next((look for look in looks if look.name == node.name), None)
        if master is None or len(looks) < len(machines.brokers) + len(machines.learners):
            return None
        is_whole = master.accepts_sends and all(self.follows(look, master) for look in looks)
        return Leading(master.name, master.incarnation, master.master_epoch) if is_whole else None

    def follows(self, look: BrokerLook, master: BrokerLook) -> bool:
        check = self.machines.check
        return (
            look.role is not ReplicaRole.NONE
            and look.master_epoch == master.master_epoch == check.newest[0]
            and (look.is_learner or look.broker_id in check.members)
        )

    def stop(self) -> None:
        self.clients.stop()

    def at_the_end(self) -> None:
        """Raises Violation."""
        self.clients.at_the_end(self.machines.broker_looks())
