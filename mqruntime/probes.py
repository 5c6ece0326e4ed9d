"""HTTP pages of every server: /metrics, /health and the probes of its roles.

Invariant: a probe answers 200 for yes and 503 for no, with the same JSON facts either way, so that an operator sees the reason.
Import this only when metrics are on: it loads the Prometheus library."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import orjson
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from mqruntime.clock import Clock
from mqruntime.figures import Labelled
from mqruntime.httppages import JSON, HttpPage, HttpPages
from mqruntime.listening import beyond_this_machine
from mqruntime.metricsettings import MetricsSettings
from mqruntime.network import Network
from mqruntime.networkmetrics import NetworkCollector

logger = logging.getLogger(__name__)

Facts = Mapping[str, object]


async def serve_probes(
    settings: MetricsSettings,
    collectors: Sequence[Collector],
    facts: Callable[[], Facts],
    roles: Mapping[str, Callable[[], bool]],
    network: Network,
    clock: Clock,
) -> HttpPages:
    """The pages, being served. `facts` are shown by probes; `roles` maps a path ("/master") to whether the role holds now.

    Every metric carries the labels of `metricsLabel` too. Raises PagesCannotListen."""
    registry = CollectorRegistry()
    for collector in (*collectors, NetworkCollector(network)):
        registry.register(Labelled(collector, settings.labels))

    def probe(holds: Callable[[], bool]) -> Callable[[], HttpPage]:
        return lambda: HttpPage(orjson.dumps(facts()) + b"\n", JSON, 200 if holds() else 503)

    pages: dict[str, Callable[[], HttpPage]] = {
        "/metrics": lambda: HttpPage(generate_latest(registry), CONTENT_TYPE_LATEST),
        "/health": probe(lambda: True),
        **{path: probe(holds) for path, holds in roles.items()},
    }
    host = settings.metrics_prom_exporter_host or settings.listens_on or "127.0.0.1"
    served = HttpPages(
        pages, host=host, port=settings.metrics_prom_exporter_port, network=network, clock=clock
    )
    await served.start()
    if (shown := beyond_this_machine(host)) is not None:
        logger.warning(
            "metrics on %s port %d: anyone who reaches it reads names and figures; metricsPromExporterHost=127.0.0.1 keeps "
            "them on this machine",
            shown,
            served.port,
        )
    return served
