"""Settings of the HTTP port for metrics and health, the same for every server.

Invariant: without `metricsExporterType=PROM` no such port is opened and none of its modules is imported."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, ClassVar

from pydantic import Field, field_validator

from mqruntime.hostports import check_host
from mqruntime.settings import Settings


class ExporterType(Enum):
    """Upstream's names; its numbers are accepted too."""

    DISABLE = "DISABLE"
    PROM = "PROM"


NUMBERS = {"0": "DISABLE", "2": "PROM"}
LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
NOT_BUILT = {"OTLP_GRPC", "LOG", "1", "3"}


class MetricsSettings(Settings):
    """A base class, in addition to a server's own settings."""

    IGNORED: ClassVar[frozenset[str]] = frozenset(
        {
            "metricGrpcExporterIntervalInMills",
            "metricGrpcExporterTimeOutInMills",
            "metricLoggingExporterIntervalInMills",
            "metricsGrpcExporterHeader",
            "metricsGrpcExporterTarget",
            "metricsInDelta",
        }
    )

    UPSTREAM: ClassVar[dict[str, str]] = {"metricsPromExporterHost": "every address"}

    metrics_exporter_type: ExporterType = Field(
        ExporterType.DISABLE,
        alias="metricsExporterType",
        description="`PROM` serves `/metrics`, `/health` and the probe of the role over HTTP",
    )
    metrics_prom_exporter_port: int = Field(
        5557, alias="metricsPromExporterPort", ge=0, le=65535, description="port of `/metrics`"
    )
    metrics_prom_exporter_host: str = Field(
        "",
        alias="metricsPromExporterHost",
        description="host of `/metrics`; empty: the host of the other ports",
    )

    metrics_label: str = Field(
        "",
        alias="metricsLabel",
        description="labels of every metric, `name:value,name:value`",
    )

    @field_validator("metrics_prom_exporter_host")
    @classmethod
    def _pages_host(cls, value: str) -> str:
        return check_host(value) if value else value

    @field_validator("metrics_label")
    @classmethod
    def _readable(cls, value: str) -> str:
        labels_of(value)
        return value

    @field_validator("metrics_exporter_type", mode="before")
    @classmethod
    def _built(cls, value: Any) -> Any:
        if value in NOT_BUILT:
            raise ValueError("only DISABLE and PROM are built; let a collector scrape PROM")
        return NUMBERS.get(value, value) if isinstance(value, str) else value

    @property
    def serves_metrics(self) -> bool:
        return self.metrics_exporter_type is ExporterType.PROM

    @property
    def labels(self) -> dict[str, str]:
        """The value of `metricsLabel`."""
        return labels_of(self.metrics_label)


def labels_of(text: str) -> dict[str, str]:
    """The labels in `name:value,name:value`. Raises ValueError."""
    labels: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, value = part.partition(":")
        if not colon or not LABEL_NAME.fullmatch(name) or name.startswith("__"):
            raise ValueError(
                f"{part!r} is no label: write name:value,name:value, names of letters, digits and underscores"
            )
        labels[name] = value
    return labels
