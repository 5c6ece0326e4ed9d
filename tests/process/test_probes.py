"""/metrics and the probes of a running cluster: one master, one leader, and the counters of each server."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from localcluster.cluster import Cluster
from mqclient.client import Client
from mqruntime.clock import SystemClock
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS
from tests.process.pagesport import pages_port
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose servers all have pages."""
    with Cluster.create(
        tmp_path_factory.mktemp("probes") / "cluster", brokers=2, broker_settings=NOBODY_IS_LATE
    ) as made:
        for name in made.layout.names:
            file = made.directory / f"{name}.conf"
            port = pages_port(made, name)
            text = f"metricsExporterType=PROM\nmetricsPromExporterPort={port}\n"
            file.write_text(file.read_text() + text)
        made.start()
        asyncio.run(made.wait_whole(timeout_ms=WAIT_MS))
        yield made


def page(cluster: Cluster, name: str, path: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{pages_port(cluster, name)}{path}"
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def figures(cluster: Cluster, name: str) -> dict[str, float]:
    """Sample name -> value, added up over the labels."""
    status, text = page(cluster, name, "/metrics")
    assert status == 200, cluster.log_tail(name)
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


async def send(cluster: Cluster, count: int) -> None:
    await cluster.create_topic("T")
    async with Client(cluster.layout.namesrv, clock=SystemClock(), random=random.Random(1)) as client:
        producer = client.producer("PG")
        for number in range(count):
            assert (await producer.send("T", bytes(100 + number), timeout_ms=WAIT_MS)).acknowledged


def test_probes_show_the_single_master_and_the_single_leader(cluster: Cluster) -> None:
    brokers, controllers = cluster.layout.broker_names, cluster.layout.controller_names
    assert sorted(page(cluster, name, "/master")[0] for name in brokers) == [200, 503]
    assert sorted(page(cluster, name, "/slave")[0] for name in brokers) == [200, 503]
    wait_until(
        "one leader",
        lambda: sorted(page(cluster, name, "/leader")[0] for name in controllers) == [200, 503, 503],
    )
    assert {page(cluster, name, "/health")[0] for name in cluster.layout.names} == {200}
    facts = [json.loads(page(cluster, name, "/master")[1]) for name in brokers]
    assert sorted(fact["role"] for fact in facts) == ["master", "slave"]
    assert {fact["epoch"] for fact in facts} == {1}


def test_brokers_show_messages_and_replication(cluster: Cluster) -> None:
    asyncio.run(send(cluster, 20))
    names = {page(cluster, name, "/master")[0]: name for name in cluster.layout.broker_names}
    master, slave = figures(cluster, names[200]), figures(cluster, names[503])
    assert master["rocketmq_messages_in_total"] == 20
    assert master["rocketmq_throughput_in_total"] == master["rocketmq_ha_max_offset"] > 2000
    assert master["rocketmq_ha_slave_ack_offset"] == master["rocketmq_ha_confirm_offset"] > 2000
    assert (master["rocketmq_ha_lag_bytes"], master["rocketmq_ha_in_sync"]) == (0, 1)
    assert (master["rocketmq_ha_sync_state_set_size"], master["rocketmq_ha_master"]) == (2, 1)
    assert ("rocketmq_messages_in_total" in slave, slave["rocketmq_ha_master"]) == (False, 0)
    assert slave["rocketmq_ha_transfer_bytes_total"] >= slave["rocketmq_ha_max_offset"]
    assert master["rocketmq_topic_number"] == slave["rocketmq_topic_number"]


def test_controllers_show_roles_requests_and_elections(cluster: Cluster) -> None:
    def shown() -> list[dict[str, float]]:
        return sorted((figures(cluster, name) for name in controllers), key=lambda figure: figure["role"])

    controllers = cluster.layout.controller_names
    wait_until("one leader", lambda: [figure["role"] for figure in shown()] == [2, 2, 3])
    wait_until("its requests", lambda: shown()[2]["request_total"] > 10)
    leader = shown()[2]
    assert (leader["active_broker_num"], leader["election_total"] >= 1) == (2, True)
    assert figures(cluster, "namesrv")["rocketmq_namesrv_brokers"] == 2


def test_without_metrics_their_library_is_not_even_loaded() -> None:
    code = (
        "import sys, broker.__main__, controller.__main__, namesrv.__main__;"
        "sys.exit('prometheus_client' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
