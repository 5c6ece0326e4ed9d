"""The faults of a soak, drawn from a seed. They come one after another, and each is undone before the next.

Invariant: a fault begins when the cluster is whole, and ends when it is whole again. No kind comes twice before every kind has
come once."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localcluster.cluster import Cluster
from localcluster.drill import DrillFailed, cut_ways, elect_another, other_members
from localcluster.partitions import shapes
from localcluster.relayprocess import RelayProcess
from localcluster.soak.strikekinds import StrikeKind, kinds
from mqadmin.replies import SyncStateInfo
from mqruntime.clock import Clock

WHOLE_TIMEOUT_MS = 300_000
QUIET_S = 3.0, 20.0
DOWN_S = 0.0, 8.0
PAUSED_S = 1.0, 16.0
"""Pauses below and above the 10 s after which controllers consider a silent broker dead."""
STRUCK_MAX = 500
"""The number of faults kept for the page. A run of days has thousands."""


@dataclass(slots=True)
class Struck:
    """The `number`th fault. `description` is a readable line. Times are wall clock ms; `whole_ms` is None while the fault is
    not over."""

    number: int
    description: str
    began_ms: int
    whole_ms: int | None = None


class Strikes:
    """Causes the faults. `struck` are the last STRUCK_MAX faults; `said` gets each fault when it is over."""

    def __init__(
        self,
        cluster: Cluster,
        relay: RelayProcess,
        clock: Clock,
        *,
        seed: int,
        of: Sequence[StrikeKind],
        said: Callable[[Struck], None],
    ) -> None:
        self.struck: deque[Struck] = deque(maxlen=STRUCK_MAX)
        self._cluster = cluster
        self._relay = relay
        self._clock = clock
        self._chance = random.Random(seed)
        self._kinds = kinds(self._chance, of)
        self._shapes = shapes(self._chance, controllers=not cluster.layout.in_raft_mode)
        self._said = said

    async def one(self) -> None:
        """Wait a while, cause a fault, and wait until the cluster is whole. Raises `DrillFailed`, `ClusterError` or
        `WaitExpired`."""
        state = await self._cluster.wait_whole(timeout_ms=WHOLE_TIMEOUT_MS)
        await asyncio.sleep(self._chance.uniform(*QUIET_S))
        kind = next(self._kinds)
        master = self._cluster.layout.name_of(state.master_address or "") or ""
        number = self.struck[-1].number + 1 if self.struck else 1
        strike = Struck(number, kind, self._clock.now_ms())
        self.struck.append(strike)
        try:
            strike.description = await self._do(kind, state, master)
        except DrillFailed:
            strike.whole_ms = self._clock.now_ms()
            raise
        await self._cluster.wait_whole(timeout_ms=WHOLE_TIMEOUT_MS)
        strike.whole_ms = self._clock.now_ms()
        self._said(strike)

    async def _do(self, kind: StrikeKind, state: SyncStateInfo, master: str) -> str:
        chance, cluster = self._chance, self._cluster
        slave = chance.choice([name for name in cluster.layout.broker_names if name != master])
        match kind:
            case (
                StrikeKind.KILL_MASTER
                | StrikeKind.KILL_SLAVE
                | StrikeKind.TERM_MASTER
                | StrikeKind.TERM_SLAVE
            ):
                name = master if kind in (StrikeKind.KILL_MASTER, StrikeKind.TERM_MASTER) else slave
                hard = kind in (StrikeKind.KILL_MASTER, StrikeKind.KILL_SLAVE)
                return await self._end(name, signal.SIGKILL if hard else signal.SIGTERM)
            case StrikeKind.PAUSE_MASTER | StrikeKind.PAUSE_SLAVE:
                return await self._pause(master if kind is StrikeKind.PAUSE_MASTER else slave)
            case StrikeKind.ELECT:
                other = chance.choice(other_members(state))
                await elect_another(cluster, other)
                how = "transfer to" if cluster.layout.in_raft_mode else kind
                return f"{how} {cluster.layout.name_of(other.address)}"
            case StrikeKind.PARTITION:
                partition = await cut_ways(cluster, self._relay, next(self._shapes), chance, master)
                return f"partition: {partition.description}"
            case StrikeKind.KILL_LEADER:
                leader = cluster.layout.name_of(await cluster.wait_leader(timeout_ms=WHOLE_TIMEOUT_MS)) or ""
                return await self._end(leader, signal.SIGKILL)
            case StrikeKind.RESTART_CONTROLLER:
                return await self._end(chance.choice(cluster.layout.controller_names), signal.SIGTERM)

    async def _end(self, name: str, number: signal.Signals) -> str:
        await asyncio.to_thread(self._cluster.kill, [name], number)
        down_s = self._chance.uniform(*DOWN_S)
        await asyncio.sleep(down_s)
        await asyncio.to_thread(self._cluster.restart, [name])  # restart waits for its end
        return f"{number.name} {name}, started after {down_s:.1f} s"

    async def _pause(self, name: str) -> str:
        paused_s = self._chance.uniform(*PAUSED_S)
        await asyncio.to_thread(self._cluster.pause, name)
        try:
            await asyncio.sleep(paused_s)
        finally:
            self._cluster.resume(name)
        return f"SIGSTOP {name} for {paused_s:.1f} s"
