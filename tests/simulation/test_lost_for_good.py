"""A set that lost more stores than its contract allows: it waits, reports it, and an operator decides."""

from __future__ import annotations

import errno

import pytest

from broker.role.identity import IDENTITY_FILE
from simulation.cluster.looks import broker_on
from simulation.cluster.world import ClusterWorld
from simulation.faults.lostforgood import LostForGood
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation
from simulation.mutants.cluster import planted

WHOLE_MS = 30_000
LATER_MS = 3_600_000
SEED = 1
"""Contract C, with three controllers, three brokers and a client only."""


class LostStore(ClusterWorld):
    """The syncs of two brokers fail; the third leads alone and then loses its store. No other fault."""

    waited = False

    def under_faults(self) -> None:
        world, machines = self.world, self.machines
        world.run_until(self.whole, WHOLE_MS)
        last = machines.brokers[0]
        machines.restart_at_ms = {node.name: LATER_MS for node in machines.brokers}
        for node in machines.slaves(last):
            node.disk.fail_next("sync", OSError(errno.EIO, "planted"), where="commitlog/")
        world.run_until(lambda: not any(node.running for node in machines.slaves(last)), WHOLE_MS)
        world.run_until(lambda: machines.master() is last, WHOLE_MS)
        last.kill()
        world.run_until(lambda: all(state.master_id is None for state in self.sync_states()), WHOLE_MS)
        self.lose(last)
        machines.restart_at_ms.clear()
        world.run_until(self.all_run, WHOLE_MS)
        assert {look.may_miss for look in machines.broker_looks() if look.name != last.name} == {True}
        self.waited = machines.master() is None

    def lose(self, node: Node) -> None:
        for path in sorted(node.disk.entries):
            if path != IDENTITY_FILE:
                node.disk.wipe(path)

    def all_run(self) -> bool:
        looks = [broker_on(node) for node in self.machines.brokers]
        return all(look is not None and look.broker_id is not None for look in looks)

    def count(self) -> None:
        """No faults."""


def test_a_set_that_waits_for_a_lost_store_is_led_after_an_operators_election() -> None:
    cluster = LostStore(SEED)
    cluster.run()
    assert cluster.waited
    assert cluster.machines.done[LostForGood.name] == 1


def test_a_set_that_waits_without_reporting_is_found() -> None:
    cluster = LostStore(SEED)
    with planted("waits-in-silence"), pytest.raises(Violation, match="V2: not whole"):
        cluster.run()
    assert cluster.waited
