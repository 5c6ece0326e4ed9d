"""RocketMQ's Java client, tools and brokers over TLS, with certificates at both ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from localcluster.cluster import Cluster
from localcluster.layout import BROKER_SET, CLUSTER_NAME, HOST
from localcluster.secured import tools_file
from scripts.peers.fleet import Fleet, fleet_missing
from scripts.peers.javapeer import missing
from scripts.peers.mixes import failovers
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS
from tests.interop.javaclient import JavaClient, everything

pytestmark = [pytest.mark.skipif(missing() is not None, reason=str(missing()))]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("secured") / "cluster"
    with Cluster.create(folder, secure=True, broker_settings=NOBODY_IS_LATE) as made:
        made.start()
        asyncio.run(made.wait_whole(timeout_ms=WAIT_MS))
        yield made


def options_of(cluster: Cluster) -> list[str]:
    """Of a JVM: our file of settings is Java's, too."""
    return ["-Dtls.enable=true", f"-Dtls.config.file={tools_file(cluster.layout)}"]


def test_java_client_and_tools_work_over_tls(
    secured: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    layout = secured.layout
    home = tmp_path_factory.mktemp("home")
    with JavaClient(layout.namesrv, home, options=options_of(secured)) as java:
        java.admin("updateTopic", "-n", layout.namesrv, "-c", CLUSTER_NAME, "-t", "Sent", "-r", 4, "-w", 4)
        assert java.ask("sync", "Sent", 100, 100) == {"acked": 100, "failed": 0}
        assert java.ask("async", "Sent", 400, 1024) == {"acked": 400, "failed": 0}
        assert java.ask("sync", "Sent", 4, 3_000_000) == {"acked": 4, "failed": 0}
        java.ask("subscribe", "Sent", "SecurePush")
        assert java.ask("drained") == everything(504, compressed=4)
        assert java.ask("pull", "Sent") == everything(504, compressed=4)
        listed = java.admin("clusterList", "-n", layout.namesrv)
        assert listed.count(BROKER_SET) == 3
        state = asyncio.run(secured.wait_whole(timeout_ms=WAIT_MS))
        other = next(replica for replica in state.in_sync if replica.broker_id != state.master_id)
        java.admin(
            "electMaster", "-a", layout.address("controller-0"), "-b", other.broker_id, "-n", layout.namesrv,
            "-c", CLUSTER_NAME, "-bn", BROKER_SET,
        )  # fmt: skip
        assert asyncio.run(secured.wait_whole(timeout_ms=WAIT_MS)).master_id == other.broker_id
        assert java.ask("sync", "Sent", 100, 100) == {"acked": 100, "failed": 0}


@pytest.mark.skipif(fleet_missing() is not None, reason=str(fleet_missing()))
@pytest.mark.long
def test_a_java_broker_and_ours_fail_over_with_tls_on_all_but_the_replication_stream(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("mixed") / "fleet"
    with Fleet.made(folder, java=["broker-0"], contract="B", secure=True) as fleet:
        fleet.start()
        asyncio.run(fleet.wait_whole(timeout_ms=WAIT_MS))
        outcome = asyncio.run(failovers(fleet, 3))
        fleet.kill(["broker-0"])
        own = fleet.log_file("broker-1").read_text()
    assert f"plain connection peer={HOST}" not in own
    assert outcome.verdict.faults == [] and outcome.verdict.acknowledged > 100
    assert set(outcome.masters) == {"broker-0", "broker-1"}
