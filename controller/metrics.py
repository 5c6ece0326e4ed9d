"""A controller's figures for Prometheus, under upstream's names.

Invariant: everything is read when it is scraped, from what the controller holds anyway and from its counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller import figures
from dledger.actions import Role
from mqruntime.figures import Families
from mqruntime.probes import serve_probes

if TYPE_CHECKING:
    from controller.counts import Counts
    from controller.server import ControllerApp
    from mqruntime.httppages import HttpPages

ROLE_NUMBERS = {Role.CANDIDATE: 1, Role.FOLLOWER: 2, Role.LEADER: 3}


async def serve_controller_probes(app: ControllerApp, counts: Counts) -> HttpPages:
    """/metrics, /health and /leader (200 on the controller that leads). Raises PagesCannotListen."""
    return await serve_probes(
        app.settings,
        ControllerCollector(app, counts),
        lambda: {
            "group": app.settings.group,
            "id": app.settings.self_id,
            "role": app.node.role.name,
            "term": app.node.term,
            "leader": app.node.leader_id,
            "leaderAddress": app.node.leader_address,
        },
        {"/leader": lambda: app.node.is_active},
    )


class ControllerCollector(Collector):
    def __init__(self, app: ControllerApp, counts: Counts) -> None:
        self._app = app
        self._counts = counts
        settings = app.settings
        values = (settings.peers[settings.self_id], settings.group, settings.self_id)
        self._families = Families(dict(zip(figures.BASE_LABELS, values, strict=True)))

    def collect(self) -> Iterator[Metric]:
        app, counts, families = self._app, self._counts, self._families
        yield families.one(figures.ROLE, ROLE_NUMBERS[app.node.role])
        yield families.one(figures.DISK_USAGE, app.node.store.size_bytes())
        live = app.guard.liveness()
        active = []
        for name, replicas in sorted(app.state.replicas.items()):
            keys = ((replicas.cluster_name, name, broker_id) for broker_id in replicas.by_id)
            active.append(((replicas.cluster_name, name), sum(map(live.is_alive, keys))))
        yield families.each(figures.ACTIVE_BROKERS, active)
        yield families.each(figures.REQUESTS, sorted(counts.requests.items()))
        latencies = sorted(counts.latencies.items())
        yield families.histograms(figures.REQUEST_LATENCY, (((kind,), waits) for kind, waits in latencies))
        proposals = sorted(counts.proposals.items())
        yield families.each(figures.PROPOSALS, ((("append", status), count) for status, count in proposals))
        yield families.histograms(figures.PROPOSAL_LATENCY, [(("append",), counts.proposal_latency)])
        yield families.each(figures.ELECTIONS, sorted(counts.elections.items()))
