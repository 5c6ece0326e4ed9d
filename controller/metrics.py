"""A controller's metrics for Prometheus, under upstream's names.

Invariant: all values are computed at each scrape, from the controller's state and its counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller import figures
from controller.counts import RequestCounts
from controller.heartbeats import Liveness
from controller.settings import ControllerSettings
from controller.state import ReplicasState
from dledger.node.node import DLedgerNode
from dledger.raft.actions import Role
from mqruntime.figures import Families

ROLE_NUMBERS = {Role.CANDIDATE: 1, Role.FOLLOWER: 2, Role.LEADER: 3}


class ControllerCollector(Collector):
    def __init__(
        self,
        settings: ControllerSettings,
        node: DLedgerNode,
        state: ReplicasState,
        liveness: Callable[[], Liveness],
        counts: RequestCounts,
    ) -> None:
        self._node = node
        self._state = state
        self._liveness = liveness
        self._counts = counts
        values = (settings.peers[settings.self_id], settings.group, settings.self_id)
        self._families = Families(dict(zip(figures.BASE_LABELS, values, strict=True)))

    def collect(self) -> Iterator[Metric]:
        node, counts, families = self._node, self._counts, self._families
        yield families.one(figures.ROLE, ROLE_NUMBERS[node.role])
        yield families.one(figures.DISK_USAGE, node.store.size_bytes())
        snapshots = node.store.snapshot_file.counts
        written = sorted(snapshots.written.items())
        yield families.each(figures.SNAPSHOTS, (((origin.value,), count) for origin, count in written))
        yield families.histograms(figures.SNAPSHOT_LATENCY, [((), snapshots.latency_ms)])
        yield families.one(figures.SNAPSHOT_BYTES, snapshots.last_bytes)
        yield families.one(figures.SNAPSHOT_INDEX, snapshots.last_index)
        live = self._liveness()
        active = []
        for name, replicas in sorted(self._state.replicas.items()):
            keys = ((replicas.cluster_name, name, broker_id) for broker_id in replicas.by_id)
            active.append(((replicas.cluster_name, name), sum(map(live.is_alive, keys))))
        yield families.each(figures.ACTIVE_BROKERS, active)
        yield families.each(figures.REQUESTS, sorted(counts.requests.items()))
        latencies = sorted(counts.latencies.items())
        yield families.histograms(figures.REQUEST_LATENCY, (((kind,), waits) for kind, waits in latencies))
        proposals = sorted(counts.proposals.items())
        yield families.each(figures.PROPOSALS, ((("append", status), count) for status, count in proposals))
        yield families.histograms(figures.PROPOSAL_LATENCY, [(("append",), counts.proposal_latency)])
        yield families.each(figures.MESSAGES_REFUSED, sorted(node.guard.refused.items()))
        yield families.each(figures.ELECTIONS, sorted(counts.elections.items()))
