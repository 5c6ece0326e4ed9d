"""The labels of an operator, and the format of every metric."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from mqruntime.figures import Families, Figure, Labelled
from mqruntime.histogram import Histogram
from mqruntime.metricsettings import MetricsSettings, labels_of
from mqruntime.network import PLAIN
from mqruntime.probes import serve_probes
from tests.support.doubles import ManualClock


def test_labels_are_read_as_upstream_reads_them() -> None:
    assert labels_of("") == {}
    assert labels_of("zone:a,env:test") == {"zone": "a", "env": "test"}
    assert labels_of(" zone:a, url:http://x:1 ,") == {"zone": "a", "url": "http://x:1"}


@pytest.mark.parametrize("text", ["zone", "a-b:c", ":x", "1a:b", "__name__:x"])
def test_a_malformed_label_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no label"):
        MetricsSettings(metricsLabel=text)


WAIT = Figure("wait_microseconds", "waits", ("kind",), histogram=True)
DONE = Figure("done_total", "done")


class Scripted(Collector):
    def collect(self) -> Iterator[Metric]:
        families = Families({"node": "n0"})
        histogram = Histogram((1, 3))
        for value in (1, 2, 9):
            histogram.observe(value)
        yield families.histograms(WAIT, [(("a",), histogram)])
        yield families.one(DONE, 7)


def shown(labels: dict[str, str]) -> str:
    registry = CollectorRegistry()
    registry.register(Labelled(Scripted(), labels))
    return generate_latest(registry).decode()


def test_histograms_are_cumulative_and_counters_end_in_total() -> None:
    lines = shown({}).splitlines()
    assert 'wait_microseconds_bucket{kind="a",le="1.0",node="n0"} 1.0' in lines
    assert 'wait_microseconds_bucket{kind="a",le="3.0",node="n0"} 2.0' in lines
    assert 'wait_microseconds_bucket{kind="a",le="+Inf",node="n0"} 3.0' in lines
    assert 'wait_microseconds_sum{kind="a",node="n0"} 12.0' in lines
    assert 'done_total{node="n0"} 7.0' in lines


def test_an_operators_label_is_on_every_sample_and_replaces_none() -> None:
    lines = [line for line in shown({"zone": "z", "node": "mine"}).splitlines() if not line.startswith("#")]
    assert lines and all('zone="z"' in line and 'node="n0"' in line for line in lines)


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", 0), ("0.0.0.0", 1)])
def test_pages_that_others_reach_are_warned_of_in_one_line(
    host: str, warned: int, caplog: pytest.LogCaptureFixture
) -> None:
    settings = MetricsSettings(metricsPromExporterHost=host, metricsPromExporterPort=0)

    async def serve() -> None:
        pages = await serve_probes(settings, [Scripted()], dict, {}, PLAIN, ManualClock())
        await pages.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(serve())
    assert len([record for record in caplog.records if "metricsPromExporterHost" in record.message]) == warned
