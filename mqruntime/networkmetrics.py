"""Metrics of a server's network: its certificate. Import this only when metrics are on: it loads the Prometheus library."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from mqruntime import networkfigures as figures
from mqruntime.figures import Families
from mqruntime.network import Network


class NetworkCollector(Collector):
    """Yields nothing for a server without a certificate."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def collect(self) -> Iterator[Metric]:
        status = self._network.certificate
        if status is None:
            return
        families = Families({})
        yield families.one(figures.EXPIRES, status.left_ms // 1000)
        yield families.one(figures.RELOADS, status.reloads)
        yield families.one(figures.FAILED_RELOADS, status.failed_reloads)
