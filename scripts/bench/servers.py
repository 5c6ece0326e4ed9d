"""The brokers of a measured cluster: which one is master, their CPU time, and when all of them have caught up.

Invariant: CPU time is that of the processes named at the start. A change of the master ends the measurement."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from localcluster.cluster import Cluster
from localcluster.secured import admin_of
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from scripts.bench.measured import cpu_seconds, own_mib

CAUGHT_UP_S_MAX = 60.0
LOOK_AGAIN_S = 0.05


@dataclass(frozen=True)
class Spent:
    """Seconds of CPU: those of the master, and the mean of its slaves."""

    master: float
    slave: float

    def since(self, before: Spent) -> Spent:
        return Spent(self.master - before.master, self.slave - before.slave)


class Servers:
    """The brokers of a whole cluster."""

    def __init__(self, cluster: Cluster) -> None:
        state = asyncio.run(cluster.wait_whole())
        self._cluster = cluster
        self.address = state.master_address or ""
        self.master = cluster.layout.name_of(self.address) or ""
        self.slaves = [name for name in cluster.layout.broker_names if name != self.master]

    def pid(self, name: str) -> int:
        identity = self._cluster.states()[name]
        if identity is None:
            raise SystemExit(f"{name} has ended; its log ends with:\n{self._cluster.log_tail(name)}")
        return identity.pid

    def log(self, name: str) -> Path:
        """The file with the broker's output."""
        return self._cluster.log_file(name)

    def spent(self) -> Spent:
        """The CPU since the brokers were started, in steps of 10 ms."""
        slaves = [cpu_seconds(self.pid(name)) for name in self.slaves]
        return Spent(cpu_seconds(self.pid(self.master)), statistics.mean(slaves or [0.0]))

    def own_mib(self) -> tuple[float, float]:
        """The anonymous memory of the master, and the greatest of its slaves."""
        slaves = [own_mib(self.pid(name)) for name in self.slaves]
        return own_mib(self.pid(self.master)), max(slaves or [0.0])

    def settle(self) -> Self:
        """Wait, at most a minute, until every slave's log is as long as the master's and all brokers have dispatched their
        logs, because work that a load leaves undone belongs to its cost."""
        asyncio.run(self._settle())
        return self

    async def _settle(self) -> None:
        admin = admin_of(self._cluster.layout)
        deadline = time.monotonic() + CAUGHT_UP_S_MAX
        try:
            while not await self._caught_up(admin):
                if time.monotonic() > deadline:
                    raise SystemExit(f"slaves have not caught up {CAUGHT_UP_S_MAX:g} s after the load")
                await asyncio.sleep(LOOK_AGAIN_S)
        finally:
            await admin.close()

    async def _caught_up(self, admin: AdminClient) -> bool:
        addresses = [self._cluster.layout.address(name) for name in (self.master, *self.slaves)]
        try:
            said = [await admin.runtime_info(address) for address in addresses]
        except AdminError:
            return False  # the broker is too busy to answer
        ends = {each["commitLogMaxOffset"] for each in said}
        return len(ends) == 1 and all(int(each["dispatchBehindBytes"]) == 0 for each in said)
