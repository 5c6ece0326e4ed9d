"""Sets a limit on the bytes that masters send to replicas that catch up, and checks that masters keep it.

Invariant F: a master counts a slave if its acknowledgements wait for that slave. To a slave that it does not count, a master
sends in any period at most the limit plus one burst over one link. No link to a slave that the master counts is slowed down for
longer than HELD_MS. In the end an operator lifts the limit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from broker.app import BrokerApp
from ha.master.connection import MasterConnection
from ha.master.link import Batch
from ha.master.pace import BURST_MS, FRAMES_A_SECOND
from ha.master.sender import LogSender
from mqruntime.core import NEVER_MS
from simulation.cluster.machines import Machines
from simulation.faults.fault import Fault
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation

LIMITS = (6_000, 30_000)
HELD_MS = 300
"""A master notices within this time that a slave begins to count."""


class Pacing(Fault):
    """The limit and its check. It has its own random generator, so that other draws of a seed do not change."""

    name = "catch-up limited"

    def __init__(self, machines: Machines, *, on: bool) -> None:
        super().__init__(machines)
        drawn = random.Random(f"{machines.world.seed}/pacing").choice(LIMITS)
        self.limit = drawn if on else None
        self.lifted = False
        self.violation: Violation | None = None
        self.sent: dict[LogSender, tuple[float, int]] = {}
        """Link -> (bytes above the limit, the time of that number in ms)."""
        self.held_since_ms: dict[MasterConnection, int] = {}

    def settings(self) -> dict[str, object]:
        """Additional settings of brokers."""
        if self.limit is None or self.lifted:
            return {}
        return {"haFlowControlEnable": True, "maxHaTransferByteInSecond": self.limit}

    @contextmanager
    def watched(self) -> Iterator[None]:
        send = LogSender._send

        def watched_send(connection: LogSender, batch: Batch) -> None:
            self.judge(connection, batch.size)
            send(connection, batch)

        with patch.object(LogSender, "_send", watched_send):
            yield

    def brokers(self) -> list[tuple[Node, BrokerApp]]:
        nodes = [*self.machines.brokers, *self.machines.learners]
        return [(node, node.app) for node in nodes if isinstance(node.app, BrokerApp)]

    def judge(self, connection: LogSender, size: int) -> None:
        """Check that `size` bytes of the log may be sent now."""
        if self.limit is None or self.lifted or not isinstance(connection, MasterConnection):
            return
        now_ms, broker_id = self.world.now_ms, connection.slave_broker_id
        for node, app in self.brokers():
            mastership = app.ha.mastership
            if mastership is None or connection not in mastership.connections:
                continue
            if broker_id in mastership.sync_state_set.union():
                return
            above, at_ms = self.sent.get(connection, (0.0, now_ms))
            above = max(0.0, above - self.limit * (now_ms - at_ms) / 1000) + size
            self.sent[connection] = above, now_ms
            if above > self.limit * BURST_MS / 1000 + self.limit / FRAMES_A_SECOND:
                self.violation = self.violation or Violation(
                    "F",
                    f"{node.name} sent broker {broker_id} {above:.0f} bytes above {self.limit} a second, "
                    f"allowed is a burst of {BURST_MS} ms",
                )
            self.machines.done[self.name] += bool(size)

    def next_step(self) -> None:
        """Raises Violation."""
        if self.violation is not None:
            raise self.violation
        held: dict[MasterConnection, int] = {}
        for node, app in self.brokers():
            mastership = app.ha.mastership
            for connection in mastership.connections if mastership is not None else ():
                counts = mastership is not None and connection.slave_broker_id in app.ha.counted_members()
                if counts and connection.link.pace.due_ms < NEVER_MS:
                    held[connection] = self.held_since_ms.get(connection, self.world.now_ms)
                    if self.world.now_ms - held[connection] > HELD_MS:
                        raise Violation(
                            "F",
                            f"{node.name} counts on {connection.slave_broker_id}, and has held it back for "
                            f"{self.world.now_ms - held[connection]} ms",
                        )
        self.held_since_ms = held

    def heal(self) -> None:
        self.lifted = True
        for _, app in self.brokers():
            app.settings.ha_flow_control_enable = False
