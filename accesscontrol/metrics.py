"""The metric of access control. Import this only when metrics are on: it loads the Prometheus library."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from accesscontrol import figures
from accesscontrol.audit import AuditLog
from mqruntime.figures import Families


class AccessCollector(Collector):
    """The refusals that `audit` has counted."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    def collect(self) -> Iterator[Metric]:
        rows = (((kind,), count) for kind, count in sorted(self._audit.refusals.items()))
        yield Families({}).each(figures.REFUSED, rows)
