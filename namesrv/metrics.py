"""A name server's figures for Prometheus; upstream has none.

Invariant: everything is read when it is scraped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from mqruntime.figures import Families
from mqruntime.probes import serve_probes
from namesrv import figures

if TYPE_CHECKING:
    from mqruntime.httppages import HttpPages
    from namesrv.server import NamesrvApp


async def serve_namesrv_probes(app: NamesrvApp) -> HttpPages:
    """/metrics and /health. Raises PagesCannotListen."""
    return await serve_probes(app.settings, NamesrvCollector(app), lambda: {"port": app.port}, {})


class NamesrvCollector(Collector):
    def __init__(self, app: NamesrvApp) -> None:
        self._app = app

    def collect(self) -> Iterator[Metric]:
        table, families = self._app.table, Families({})
        yield families.one(figures.BROKERS, len(table.live))
        yield families.one(figures.TOPICS, len(table.topics))
