"""The cluster in real processes and the JVM that the tests of this layer share.

The cluster's delay levels and its slaves' copy interval are short for the tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from localcluster.cluster import Cluster
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS
from tests.interop.javaclient import JavaClient
from tests.support.forkedservers import forked_servers
from tests.support.patientclients import patient_clients

ASKED_SOON = {"transactionTimeOut": "2000", "transactionCheckInterval": "1000"}
BROKER_SETTINGS = {
    "messageDelayLevel": "1s 1s 1s 1s 1s",
    "slaveSyncInterval": "500",
    "traceTopicEnable": "true",
    "enablePropertyFilter": "true",
    **ASKED_SOON,
    **NOBODY_IS_LATE,
}


@pytest.fixture(scope="session", autouse=True)
def forked() -> Iterator[None]:
    with forked_servers():
        yield


@pytest.fixture(scope="module", autouse=True)
def patient() -> Iterator[None]:
    """For this layer only, because the digest of a simulation depends on every timeout."""
    with patient_clients():
        yield


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Every test leaves all replicas in sync."""
    directory = tmp_path_factory.mktemp("interop") / "cluster"
    with Cluster.create(directory, broker_settings=BROKER_SETTINGS) as made:
        made.start()
        asyncio.run(made.wait_whole(timeout_ms=WAIT_MS))
        yield made


@pytest.fixture(scope="session")
def java(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    with JavaClient(cluster.layout.namesrv, tmp_path_factory.mktemp("home")) as client:
        yield client
