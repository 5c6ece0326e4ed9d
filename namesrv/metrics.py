"""Metrics of a name server for Prometheus; upstream has none.

Invariant: every figure is read when Prometheus scrapes it."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from mqruntime.figures import Families
from namesrv import figures
from namesrv.routes import RouteTable


class NamesrvCollector(Collector):
    def __init__(self, table: RouteTable) -> None:
        self._table = table

    def collect(self) -> Iterator[Metric]:
        table, families = self._table, Families({})
        yield families.one(figures.BROKERS, len(table.live))
        yield families.one(figures.TOPICS, len(table.topics))
