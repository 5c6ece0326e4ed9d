"""A controller's figures for Prometheus, under upstream's names.

Invariant: everything is read when it is scraped, from what the controller holds anyway and from its counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dledger.actions import Role
from mqruntime.probes import serve_probes

if TYPE_CHECKING:
    from controller.counts import Counts
    from controller.server import ControllerApp
    from mqruntime.httppages import HttpPages

BASE_LABELS = ("address", "group", "peer_id")
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
        self._base = (settings.peers[settings.self_id], settings.group, settings.self_id)

    def collect(self) -> Iterator[Metric]:
        app, base = self._app, self._base
        role = GaugeMetricFamily("role", "1 candidate, 2 follower, 3 leader", labels=BASE_LABELS)
        role.add_metric(base, ROLE_NUMBERS[app.node.role])
        yield role
        active = GaugeMetricFamily(
            "active_broker_num", "brokers heard in time", labels=(*BASE_LABELS, "cluster", "broker_set")
        )
        live = app.guard.liveness()
        for name, replicas in sorted(app.state.replicas.items()):
            keys = ((replicas.cluster_name, name, broker_id) for broker_id in replicas.by_id)
            active.add_metric((*base, replicas.cluster_name, name), sum(map(live.is_alive, keys)))
        yield active
        requests = CounterMetricFamily(
            "request", "requests answered", labels=(*BASE_LABELS, "request_type", "request_handle_status")
        )
        for request_labels, count in sorted(self._counts.requests.items()):
            requests.add_metric((*base, *request_labels), count)
        yield requests
        elections = CounterMetricFamily(
            "election", "elections held", labels=(*BASE_LABELS, "cluster", "broker_set", "election_result")
        )
        for election_labels, count in sorted(self._counts.elections.items()):
            elections.add_metric((*base, *election_labels), count)
        yield elections
