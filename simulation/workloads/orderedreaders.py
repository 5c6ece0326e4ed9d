"""Clients that consume in order from a set under controllers.

Invariant: those of simulation.workloads.lockingclients, O1 and O2."""

from __future__ import annotations

from mqclient.route import MessageQueue
from simulation.cluster.machines import Machines
from simulation.cluster.members import BROKER_SET, NAMESRV, QUEUES, TOPIC
from simulation.faults.fault import Fault
from simulation.kernel.node import Node
from simulation.workloads.lockingclients import READ, LockingClients

ALL = [MessageQueue(TOPIC, BROKER_SET, number) for number in range(QUEUES)]


class OrderedReaders(Fault):
    """The clients. They are independent of the fault plan, have their own random generator, and run on a host without
    faults."""

    name = READ

    def __init__(self, machines: Machines, node: Node, *, is_hasty: bool) -> None:
        super().__init__(machines)
        self.clients = LockingClients(
            machines.world, node, ALL, NAMESRV, master=machines.master, kill=machines.kill, done=machines.done,
            is_hasty=is_hasty, credentials=machines.credentials,
        )  # fmt: skip

    def next_step(self) -> None:
        """Raises Violation."""
        self.clients.next_step()

    @property
    def answered(self) -> int:
        return self.clients.answered

    def heal(self) -> None:
        self.clients.heal()

    def at_the_end(self) -> None:
        """Check that a client gets every queue of a whole cluster. Raises Violation."""
        self.clients.at_the_end()
