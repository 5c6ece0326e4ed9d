"""Sectors of a log that cannot be read for a while.

Invariant: afterwards the written bytes can be read again, so nothing that was promised in a run is lost. Product code that
reads the bytes meanwhile must report the error, continue with other bytes, and read again later."""

from __future__ import annotations

import random

from simulation.cluster.machines import Machines
from simulation.faults.fault import Fault

LOG = "commitlog/"
GAP_MS = (1_000, 6_000)
LASTS_MS = (200, 2_000, 8_000)


class BadSectors(Fault):
    """An independent fault with its own random generator, so that it changes no other fault of a seed."""

    name = "sectors that cannot be read"

    def __init__(self, machines: Machines) -> None:
        super().__init__(machines)
        self.random = random.Random(f"{machines.world.seed}/bad sectors")
        self.active = True
        self.next_ms = 0
        self.failed_reads = 0

    def next_step(self) -> None:
        failed_reads = sum(node.disk.failures["read"] for node in self.machines.brokers)
        if failed_reads > self.failed_reads:
            self.failed_reads = failed_reads
            self.count()
        now_ms = self.world.now_ms
        if not self.active or now_ms < self.next_ms:
            return
        self.next_ms = now_ms + self.random.randint(*GAP_MS)
        node = self.random.choice(self.machines.brokers)
        if segments := sorted(path for path in node.disk.entries if path.startswith(LOG)):
            node.disk.unreadable(self.random.choice(segments), self.random.choice(LASTS_MS))

    def heal(self) -> None:
        self.active = False
        for node in self.machines.brokers:
            node.disk.readable()
