"""Checks that a set with enough healthy replicas has a serving master, even while other replicas are not healthy.

Invariant V2 during a run: there is a master that accepts messages, if for long enough three things have been healthy: as many
members of the set as an acknowledgement needs, a majority of the controllers, and the network between all of these. Long enough
is the time in which silent brokers are declared dead, a lost master is replaced, and lost members leave the set."""

from __future__ import annotations

from broker.role.membership import ReplicaRole
from simulation.cluster.looks import BrokerLook, controller_app
from simulation.cluster.machines import Machines
from simulation.cluster.members import Timers
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation

SETTLED_MS = 30_000
"""Time for an election among controllers, an election among brokers, the change of role, and a master that yields after a
while."""


class Service:
    """Checks the service at each `look`, which must be called often. `members_min` is minInSyncReplicas."""

    def __init__(self, machines: Machines, timers: Timers, members_min: int) -> None:
        self.machines = machines
        self.members_min = max(1, members_min)
        self.limit_ms = SETTLED_MS + timers.broker_dead_ms + timers.not_caught_up_ms
        self.well_since_ms: int | None = None
        self.longest_ms = 0
        """The longest time without a master that takes messages while everything needed for one was healthy."""

    def look(self, looks: list[BrokerLook]) -> None:
        """Check the brokers and learners that run. Raises Violation."""
        now_ms = self.machines.world.now_ms
        if not self.is_well(looks):
            self.well_since_ms = None
            return
        if self.well_since_ms is None or self.is_served(looks):
            self.well_since_ms = now_ms
        self.longest_ms = max(self.longest_ms, now_ms - self.well_since_ms)
        if now_ms - self.well_since_ms > self.limit_ms:
            raise Violation(
                "V2",
                f"no master takes messages for {self.limit_ms} ms, though {self.members(looks)} are well",
            )

    def is_served(self, looks: list[BrokerLook]) -> bool:
        return any(
            look.role is ReplicaRole.MASTER
            and look.accepts_sends
            and look.master_epoch == self.machines.check.newest[0]
            for look in looks
        )

    def is_well(self, looks: list[BrokerLook]) -> bool:
        machines = self.machines
        controllers = [
            node for node in machines.controllers if runs_well(node) and controller_app(node) is not None
        ]
        return (
            machines.world.network.is_whole()
            and 2 * len(controllers) > len(machines.controllers)
            and len(self.members(looks)) >= self.members_min
        )

    def members(self, looks: list[BrokerLook]) -> list[int]:
        """The members of the newest set that could lead or that a master may wait for."""
        members = self.machines.check.members
        return [look.broker_id for look in looks if look.broker_id in members and self.is_healthy(look)]

    def is_healthy(self, look: BrokerLook) -> bool:
        machines = self.machines
        node = machines.world.nodes[look.name]
        if look.may_miss or look.stays_out is not None or not runs_well(node):
            return False
        is_lost = look.broker_id in machines.lost_ids or node.name in {
            *machines.losing,
            *machines.check.forgetful,
        }
        is_damaged = node.name in machines.damaged.where or machines.damaged.flipped_at(node.name) is not None
        return not (is_lost or is_damaged or node.name in machines.doubtful_disks)


def runs_well(node: Node) -> bool:
    """Whether the node's process runs and its disk works."""
    process = node.process
    return process is not None and process.alive and not process.paused and node.disk.is_well
