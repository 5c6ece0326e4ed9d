"""Runs the producers of simulation.workloads.dealers against a cluster under controllers, independently of its faults."""

from __future__ import annotations

import asyncio

from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import TopicSettings
from simulation.checkers.shadow import deleted_messages
from simulation.cluster.machines import Machines
from simulation.cluster.members import BROKER_SET, CONTROLLERS, NAMESRV
from simulation.faults.fault import Fault
from simulation.kernel.node import Node, SimulatedClock
from simulation.workloads.abandoned import Abandoned
from simulation.workloads.dealers import DEALS, NAME, Dealers


class Transactors(Fault):
    """`kept_ms` is how long the log is kept. `some_abandon` means that some transactions have no end."""

    name = NAME

    def __init__(self, machines: Machines, node: Node, *, kept_ms: int, some_abandon: bool) -> None:
        super().__init__(machines)
        self.node = node
        seed = machines.world.seed
        self.abandoned = Abandoned(seed, kept_ms, plays=some_abandon)
        self.dealers = Dealers(
            node,
            machines.brokers,
            seed=seed,
            namesrv=NAMESRV,
            master=machines.master,
            kill=machines.kill,
            create_topic=self.create_topic,
            done=machines.done,
            keeps=True,
            credentials=machines.credentials,
            abandoned=self.abandoned,
        )

    def next_step(self) -> None:
        """Raises Violation."""
        self.dealers.look()

    def heal(self) -> None:
        self.dealers.healed = True

    async def create_topic(self) -> None:
        admin = AdminClient(SimulatedClock(self.node), signer=self.machines.signer)
        while True:
            try:
                state = (await admin.sync_states(CONTROLLERS, [BROKER_SET]))[BROKER_SET]
                await admin.create_topic(state.master_address or "", TopicSettings(DEALS, 1, 1))
                await admin.topic_route(NAMESRV, DEALS)
                break
            except (AdminError, KeyError):
                await asyncio.sleep(0.2)
        await admin.close()

    def settle(self) -> None:
        """Raises Violation."""
        self.dealers.settle(self.world)

    def at_the_end(self, log: bytearray, segment_bytes: int) -> None:
        """Judge all transactions. `log` has all records ever confirmed. Raises Violation."""
        ever = list(deleted_messages(log, len(log), segment_bytes))
        spread_ms = self.machines.spread_ms
        self.abandoned.judge(ever, spread_ms)
        self.dealers.judge(ever, checks_due=spread_ms < self.abandoned.kept_ms)
