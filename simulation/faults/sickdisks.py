"""The master's disk hangs or fails for ever while nothing else is wrong. Another broker must become master soon.

Invariant: all brokers are in the set when such a trial begins, so another broker has all data. The disk is repaired
afterwards."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from broker.role.membership import ReplicaRole
from epochfile.file import DEFAULT_NAME
from simulation.cluster.looks import BrokerLook
from simulation.cluster.machines import Machines
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation

SUCCESSOR_MS_MAX = 30_000
FOR_GOOD_MS = 600_000
FOR_GOOD_TIMES = 10_000


class SickDisks:
    """`whole` is called before and after each trial, and returns when the cluster is whole."""

    def __init__(self, machines: Machines, whole: Callable[[], None]) -> None:
        self.machines = machines
        self.whole = whole

    def run(self) -> None:
        """Raises Violation."""
        self.whole()
        self.hung_master()
        self.whole()
        self.master_that_cannot_begin()
        self.whole()

    def hung_master(self) -> None:
        """The master's disk hangs: no sync ends any more."""
        former = self.machines.master()
        assert former is not None, "the cluster is whole"
        former.disk.stall(FOR_GOOD_MS)
        self.another_leads(former, "whose disk hangs")
        self.restarted(former)
        self.machines.done["master whose disk hangs for good"] += 1

    def master_that_cannot_begin(self) -> None:
        """One of the two slaves, which may be elected next, cannot write its epoch."""
        former = self.machines.master()
        assert former is not None, "the cluster is whole"
        sick = self.machines.random.choice(self.machines.slaves(former))
        failure = OSError(errno.EIO, os.strerror(errno.EIO))
        sick.disk.fail_next("replace", failure, where=DEFAULT_NAME, times=FOR_GOOD_TIMES)
        former.kill()
        self.machines.restart_at_ms[former.name] = self.machines.world.now_ms + FOR_GOOD_MS
        self.another_leads(former, "that died, while a slave cannot write its epochs", sick)
        sick.disk.mend()
        self.restarted(sick)
        self.machines.restart_at_ms.clear()
        self.machines.done["slave that cannot write its epochs"] += 1

    def another_leads(self, former: Node, why: str, *sick: Node) -> None:
        world = self.machines.world
        deadline_ms = world.now_ms + SUCCESSOR_MS_MAX
        unfit = {node.name for node in (former, *sick)}

        def serves(look: BrokerLook) -> bool:
            return look.name not in unfit and look.role is ReplicaRole.MASTER and look.accepts_sends

        while not any(serves(look) for look in self.machines.broker_looks()):
            if world.now_ms > deadline_ms:
                raise Violation(
                    "V2", f"{SUCCESSOR_MS_MAX} ms after {former.name}, {why}, no other broker takes messages"
                )
            world.run_for_ms(200)

    def restarted(self, node: Node) -> None:
        """Start the broker again on a repaired disk."""
        node.kill()
        node.disk.stall(0)
        self.machines.restart_at_ms.pop(node.name, None)
