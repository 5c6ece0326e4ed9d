"""Declarations of a server's Prometheus metrics, shared by the collector and the table in the documentation.

Invariant: a family has the declared name, type and labels, after the labels that all metrics of the server have. Import this
only when metrics are on: it loads the Prometheus library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from mqruntime.histogram import Histogram

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """`name` is the scraped one; a name that ends in `_total` is a counter's. `labels` are this metric's own."""

    name: str
    meaning: str
    labels: Labels = ()
    ours: bool = False
    """Whether upstream has no such metric."""
    histogram: bool = False

    @property
    def kind(self) -> str:
        if self.histogram:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


class Families:
    """Makes families whose samples all carry `base`."""

    def __init__(self, base: Mapping[str, str]) -> None:
        self._names = tuple(base)
        self._values = tuple(base.values())

    def one(self, figure: Figure, value: float) -> Metric:
        """A metric without labels of its own."""
        return self.each(figure, [((), value)])

    def each(self, figure: Figure, values: Iterable[tuple[Labels, float]]) -> Metric:
        """`values` by the metric's own labels."""
        make = CounterMetricFamily if figure.kind == "counter" else GaugeMetricFamily
        family = make(figure.name, figure.meaning, labels=(*self._names, *figure.labels))
        for labels, value in values:
            family.add_metric((*self._values, *labels), value)
        return family

    def histograms(self, figure: Figure, values: Iterable[tuple[Labels, Histogram]]) -> Metric:
        """`each` for histograms."""
        family = HistogramMetricFamily(figure.name, figure.meaning, labels=(*self._names, *figure.labels))
        for labels, histogram in values:
            bounds = [*(f"{bound:.1f}" for bound in histogram.bounds), "+Inf"]
            buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
            family.add_metric((*self._values, *labels), buckets, histogram.sum)
        return family


class Labelled(Collector):
    """The metrics of `collector` with `labels` on every sample; a sample keeps a label that it has already."""

    def __init__(self, collector: Collector, labels: Mapping[str, str]) -> None:
        self._collector = collector
        self._labels = dict(labels)

    def collect(self) -> Iterator[Metric]:
        for family in self._collector.collect():
            family.samples = [
                sample._replace(labels=self._labels | dict(sample.labels)) for sample in family.samples
            ]
            yield family
